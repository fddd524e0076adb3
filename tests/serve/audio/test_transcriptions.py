"""/v1/audio/transcriptions with OpenAI's client: formats, language, words, limits, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from headway.api import Bundle, load
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import syllables
from tests.serve.conftest import KEY, Running, running
from tests.tasks.transcribe.conftest import make_folder, make_moonshine

SPOKEN = syllables(1, seed=3, words=(2, 2))[0]
SOUND = wav_bytes(SPOKEN.samples, SPOKEN.rate)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load(make_folder(tmp_path_factory.mktemp("speech") / "whisper", 1))


@pytest.fixture(scope="module")
def server(speech: Bundle) -> Iterator[Running]:
    with running(speech, KEY, image_bytes=200_000, sound_seconds=4.0) as made:
        yield made


def ask(server: Running, **more: Any) -> Any:
    given: dict[str, Any] = {"file": ("talk.wav", SOUND), "model": server.served.id, "temperature": 1.0} | more
    return server.client().audio.transcriptions.create(**given)


def test_formats_are_those_of_python(server: Running, speech: Bundle) -> None:
    expected = speech.transcribe(SOUND, temperature=1.0)
    found = expected.to_dict()
    assert expected.text and ask(server).text == expected.text
    formats = speech_formats()
    assert ask(server, response_format="text").removesuffix("\n") == expected.text
    assert ask(server, response_format="srt") == formats["srt"](found)
    assert ask(server, response_format="vtt") == formats["vtt"](found)
    verbose = ask(server, response_format="verbose_json")
    assert verbose.language in ("english", "german", "chinese") and verbose.words is None
    assert float(verbose.duration) == pytest.approx(expected.duration, abs=1e-3)
    assert [(part.start, part.tokens) for part in verbose.segments] == [
        (part["start"], part["tokens"]) for part in found["segments"]
    ]


def speech_formats() -> Any:
    from headway.tasks.transcribe.task import Transcribe

    return Transcribe.formats


def test_languages_prompts_and_words(server: Running, speech: Bundle) -> None:
    german = ask(server, language="de", response_format="verbose_json")
    assert german.language == "german" and german.text == speech.transcribe(SOUND, temperature=1.0, language="de").text
    assert german.text != ask(server, language="zh").text
    assert (
        ask(server, prompt="names").text
        == speech.transcribe(SOUND, temperature=1.0, prompt="names").text
        != ask(server).text
    )
    timed = ask(server, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    words = speech.transcribe(SOUND, temperature=1.0, words=True).to_dict()["segments"]
    assert [word.word for word in timed.words] == [word["word"] for part in words for word in part["words"]]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"response_format": "xml"}, "response_format"),
        ({"temperature": 3.0}, "temperature"),
        ({"language": "klingon"}, "language"),
        ({"file": ("a.wav", b"RIFF nothing")}, "file"),
        ({"file": ("a.wav", b"")}, "file"),
        ({"extra_body": {"speed": "2"}}, "speed"),
        ({"extra_body": {"stream": "true"}}, "stream"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
        ({"file": ("a.wav", wav_bytes(np.full(40_000, 0.1, np.float32), 8000))}, "file"),
    ],
)
def test_refused(server: Running, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(server, **more)
    assert caught.value.param == param and server.idle()


def test_large_bodies_and_other_bodies_are_refused(server: Running) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        ask(server, file=("a.wav", wav_bytes(np.full(120_000, 0.1, np.float32), 8000)))
    assert caught.value.status_code == 413
    answer = server.post("/v1/audio/transcriptions", {"model": server.served.id})
    assert answer.status_code == 415
    with server.http() as client:
        answer = client.post("/v1/audio/transcriptions", data={"model": server.served.id}, files={"other": b"x"})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "file"


def test_other_models_say_so(encoder: Bundle) -> None:
    with running(encoder, KEY) as server, pytest.raises(openai.BadRequestError, match="does not transcribe"):
        ask(server)


def test_the_form_is_described(server: Running) -> None:
    described = httpx.Response(200, text=server.get("/openapi.json").text).json()
    content = described["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
    form = content["multipart/form-data"]["schema"]
    assert form["required"] == ["file", "model"] and form["properties"]["model"]["enum"] == [server.served.id]
    assert json.dumps(described).count("Transcription") > 1


def test_a_model_of_samples_is_served_too(tmp_path: Path) -> None:
    """Moonshine has no languages and reads no prompt: what it cannot do is the client's mistake."""
    model = load(make_moonshine(tmp_path / "moonshine", 0))
    with running(model, KEY) as made:
        given = {"file": ("talk.wav", SOUND), "model": made.served.id}
        found = made.client().audio.transcriptions.create(**given, response_format="verbose_json", temperature=1.0)
        assert found.text == model.transcribe(SOUND, temperature=1.0).text and len(found.segments) == 1
        for name, value in (("language", "de"), ("prompt", "Dashwood")):
            with pytest.raises(openai.BadRequestError) as caught:
                made.client().audio.transcriptions.create(**given, **{name: value})
            assert caught.value.param == name
