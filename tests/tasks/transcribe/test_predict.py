"""Transcripts from Python and the command line: sources, languages, formats, words, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.api import Bundle, load
from headway.cli import main
from headway.data.sounds.mel import log_mel
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import syllables
from headway.errors import ConfigError, DataError, NotFoundError
from headway.tasks.transcribe.features import SoundFeatures
from headway.tasks.transcribe.languages import NAMES, code_of
from headway.tasks.transcribe.predict import TranscribePredictor, recording_of
from headway.tasks.transcribe.prompt import previous_text

Folders = Callable[..., Path]
SPOKEN = syllables(2, seed=4, rate=16_000, words=(2, 3))
QUICK = {"fallback": 0}


@pytest.fixture(scope="module")
def bundle(whisper: Folders) -> Bundle:
    return load(whisper(1))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("talks")
    paths = [folder / f"{number}.wav" for number in range(len(SPOKEN))]
    for path, spoken in zip(paths, SPOKEN, strict=True):
        path.write_bytes(wav_bytes(spoken.samples, spoken.rate))
    return paths


def test_sources_and_lists(bundle: Bundle, files: list[Path]) -> None:
    one = bundle.transcribe(str(files[0]), **QUICK)
    assert one.text and one.segments and one.language in ("en", "de", "zh")
    assert one.duration == pytest.approx(len(SPOKEN[0].samples) / 16_000)
    samples = (SPOKEN[0].samples * 32767).round() / 32768  # as a file of 16 bits has them
    for source in (files[0], files[0].read_bytes(), (samples, 16_000), samples):
        assert bundle.transcribe(source, **QUICK).text == one.text
    several = bundle.transcribe([files[0], str(files[1])], **QUICK)
    assert [each.text for each in several] == [bundle.transcribe(str(path), **QUICK).text for path in files]


def test_results_are_plain(bundle: Bundle, files: list[Path]) -> None:
    found = bundle.transcribe(str(files[0]), words=True, **QUICK).to_dict()
    assert json.loads(json.dumps(found)) == found
    words = [word for part in found["segments"] for word in part["words"]]
    assert words and all(0 <= word["start"] <= word["end"] <= found["duration"] + 1 for word in words)
    assert all("words" not in part for part in bundle.transcribe(str(files[0]), **QUICK).to_dict()["segments"])


def test_spectrograms_are_padded_as_whisper_pads(bundle: Bundle) -> None:
    short = np.random.default_rng(0).normal(size=4000).astype(np.float32) / 4
    made = recording_of(short, SoundFeatures(100, 80))
    assert made.frames == 25 and made.signal.shape == (80, 100)
    assert torch.equal(made.signal, torch.from_numpy(log_mel(np.pad(short, (0, 12_000)))))
    long = np.tile(short, 10)
    assert torch.equal(recording_of(long, SoundFeatures(100, 80)).signal, torch.from_numpy(log_mel(long)))


def test_languages(bundle: Bundle, files: list[Path], whisper: Folders) -> None:
    assert code_of("German") == code_of("<|de|>") == "de" and code_of("haitian creole") == "ht" and len(NAMES) == 100
    german, chinese = (bundle.transcribe(str(files[0]), language=name, **QUICK) for name in ("German", "zh"))
    assert (german.language, chinese.language) == ("de", "zh") and german.text != chinese.text
    with pytest.raises(DataError, match=r"does not know the language 'germna'.*german"):
        bundle.transcribe(str(files[0]), language="germna")
    english = load(whisper(5, multilingual=False))
    assert english.transcribe(str(files[0]), **QUICK).language == ""
    with pytest.raises(DataError, match="one language"):
        english.transcribe(str(files[0]), language="de")


def test_special_tokens_of_a_prompt_are_refused(bundle: Bundle) -> None:
    predictor = TranscribePredictor(bundle)
    assert previous_text("  ", predictor.tokenizer, predictor.speech) == []
    assert previous_text("ab", predictor.tokenizer, predictor.speech) == predictor.tokenizer.ids([" ab"])[0]
    with pytest.raises(DataError, match="startoftranscript"):
        previous_text("a<|startoftranscript|>", predictor.tokenizer, predictor.speech)


def test_settings_are_checked(bundle: Bundle, files: list[Path]) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        bundle.transcribe(str(files[0]), temperature=2.0)
    with pytest.raises(NotFoundError):
        bundle.transcribe("nothing.wav")
    with pytest.raises(DataError, match="sound 1"):
        bundle.transcribe(7)


def said(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capfd.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(["run", *words, "--device", "cpu", "-q"])
    out, err = capfd.readouterr()
    assert caught.value.code == code, err
    return out if code == 0 else err


def test_the_command_line(bundle: Bundle, files: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    model, first = str(bundle.folder), str(files[0])
    quick = ["transcribe.fallback=0"]
    wanted = bundle.transcribe(first, language="de", **QUICK)
    options = [first, *quick, "--language", "de"]
    assert said(capfd, model, *options).rstrip("\n") == wanted.text
    for name, write in TranscribePredictor.task.formats.items():
        assert said(capfd, model, *options, "--format", name) == write(wanted.to_dict()) + "\n"
    both = [json.loads(line) for line in said(capfd, model, *map(str, files), *quick, "--json", "--words").splitlines()]
    assert [row["sound"] for row in both] == list(map(str, files)) and "words" in both[0]["segments"][0]
    rows = [json.loads(line) for line in said(capfd, model, "--file", str(files[0].parent), *quick).splitlines()]
    assert [row["text"] for row in rows] == [row["text"] for row in both]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "doc"], "--format doc"),
        (["--format", "srt", "--json"], "--json"),
        (["--file", "x.csv", "--format", "srt"], "--format"),
        (["--language", "xx"], "'xx'"),
    ],
)
def test_refused_on_the_command_line(
    bundle: Bundle, files: list[Path], capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    sources = [] if "--file" in words else [str(files[0])]
    codes = {"--language": 4}.get(words[0], 2)
    assert message in said(capfd, str(bundle.folder), *sources, *words, code=codes)


def test_options_of_speech_are_for_speech(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--words"], ["--language", "de"], ["--format", "srt"]):
        assert words[0] in said(capfd, "gpt2-tiny", "Once", *words, code=2)


def test_segments_of_a_table(bundle: Bundle, files: list[Path], tmp_path: Path) -> None:
    """Columns start and end read a part of a file."""
    from headway.config.recipe import DataConfig
    from headway.data.files.rows import BadRows

    path = tmp_path / "parts.jsonl"
    row: dict[str, Any] = {"audio": str(files[1]), "start": 0.1, "end": 0.5, "text": "ma"}
    path.write_text(json.dumps(row) + "\n")
    (item,) = TranscribePredictor.task.inputs(str(path), DataConfig(), BadRows())
    found = TranscribePredictor(bundle).predict([item.example])[0]
    assert found.duration == pytest.approx(0.4)
