"""Sounds over HTTP: base64, uploaded files, and what must not be read."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.api import Bundle, load
from headway.config.model import ClassifyHeadConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import sound_config
from headway.data.sounds.preprocess import FILE, SoundPreprocess
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import tones
from headway.hub.folder import save_model, write_side_files
from headway.model.model import Transformer
from tests.serve.conftest import KEY, Running, refusal, running

TONE = tones(1, 5, ("rising",))[0]
WAV = wav_bytes(TONE.samples, TONE.rate)
TEXT = base64.b64encode(WAV).decode()


@pytest.fixture(scope="module")
def ear(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    base = sound_config(ShapeConfig(depth=1, width=32, heads=2), 40, 50, 10)
    model = Transformer(replace(base, classify=ClassifyHeadConfig(labels=3), labels=("a", "b", "c"))).eval()
    folder = save_model(model, tmp_path_factory.mktemp("ear") / "model")
    write_side_files(folder, {FILE: SoundPreprocess(8000, 0.5, 40).to_dict()})
    return load(folder)


@pytest.fixture(scope="module")
def server(ear: Bundle) -> Iterator[Running]:
    with running(ear, KEY, image_bytes=200_000) as made:
        yield made


def ask(server: Running, given: Any) -> Any:
    return server.post("/v1/run", {"model": server.served.id, "input": given})


def test_base64_and_uploads_give_what_python_gives(server: Running, ear: Bundle) -> None:
    expected = ear.classify(WAV).to_dict()
    for given in (TEXT, f"data:audio/wav;base64,{TEXT}", {"audio": TEXT}, [TEXT]):
        answer = ask(server, given)
        assert answer.status_code == 200, answer.text
        (row,) = answer.json()["data"]
        assert row["label"] == expected["label"]
        assert row["probability"] == pytest.approx(expected["probability"], abs=1e-5)
    uploaded = server.post("/v1/run", WAV, **{"content-type": "audio/wav"})
    assert uploaded.json()["data"][0]["probability"] == pytest.approx(expected["probability"], abs=1e-5)
    part = ask(server, {"audio": TEXT, "start": 0.5, "end": 1.0}).json()["data"][0]
    assert part["probability"] != pytest.approx(expected["probability"], abs=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        "/etc/passwd",
        "clip.wav",
        "",
        7,
        {"path": "/etc/hostname"},
        {"audio": None},
        TEXT[:99],
        {"audio": TEXT, "end": 9},
    ],
)
def test_no_sound_and_no_files_of_the_server(server: Running, given: Any) -> None:
    status, _ = refusal(ask(server, given))
    assert status == 400 and server.idle()


def test_large_bodies_and_images_are_refused(server: Running) -> None:
    assert server.post("/v1/run", b"x" * 250_000, **{"content-type": "audio/wav"}).status_code == 413
    assert server.post("/v1/run", WAV, **{"content-type": "image/png"}).status_code in (400, 415)
