"""Sound classifiers: learn, read long sounds in windows, fine-tune, and refuse what is no sound."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.cli import main
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.sounds import tones
from headway.errors import ConfigError, DataError, HeadwayError
from headway.tasks.audio_classification.training import AudioClassificationTraining
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

STEPS = ("train.batch=8", "train.steps=4", "train.warmup=1", "train.eval_every=4", "train.sample_every=4")
TINY = ("model.depth=1", "model.width=16", "model.heads=2", "train.save_every=4", *STEPS)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of two classes, and test data."""
    folder = tmp_path_factory.mktemp("clips")
    for part, count in (("train", 20), ("test", 4)):
        for i, tone in enumerate(tones(count, len(part), ("tone", "noise"), seconds=0.5)):
            path = folder / part / tone.kind / f"{i}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wav_bytes(tone.samples, tone.rate))
    return folder


@pytest.fixture(scope="module")
def run(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    words = [*TINY, f"out={out}", f"data.train={clips}", "audio_classification.mixup=0.3"]
    return train(start("run", load_recipe("audio_classification", words)[1]), lambda kind, **facts: None).folder


def test_python_classifies_paths_bytes_and_samples(run: Path, clips: Path) -> None:
    model = headway.load(run)
    path = clips / "test" / "noise" / "1.wav"
    made = tones(4, 4, ("tone", "noise"), seconds=0.5)[1]
    one = model.classify(str(path))
    pcm = (made.samples * 32767).round().astype(np.int16)
    several = model.classify([path, path.read_bytes(), (pcm / np.float32(32767), 8000)])
    assert one.label in ("tone", "noise") and len(several) == 3
    assert all(each.probabilities == pytest.approx(one.probabilities, abs=1e-3) for each in several)
    assert model.classify((made.samples, 8000)).label == one.label
    for wrong in (None, 3, "no.wav", b"nothing", [b""]):
        with pytest.raises(HeadwayError):
            model.classify(wrong)


def test_a_long_sound_is_read_in_windows(run: Path) -> None:
    model = headway.load(run)
    made = tones(2, 5, ("tone", "noise"), seconds=1.0)
    whole = model.classify((np.concatenate([tone.samples for tone in made]), 8000))
    joined = np.concatenate([tone.samples for tone in made])
    windows = [model.classify((joined[at : at + 8000], 8000)) for at in (0, 4000, 8000)]
    for label, share in whole.probabilities.items():
        assert share == pytest.approx(np.mean([each.probabilities[label] for each in windows]), abs=1e-3)


def test_eval_on_a_folder(run: Path, clips: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["eval", str(run), str(clips / "test"), "--device", "cpu", "-q"])
    assert caught.value.code == 0 and "accuracy" in capsys.readouterr().out


def test_segments_of_a_table(run: Path, clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "list.csv"
    table.write_text(f"file,start,end\n{clips}/test/tone/0.wav,0.1,0.3\n{clips}/test/tone/0.wav,,\n")
    with pytest.raises(SystemExit):
        main(["run", str(run), "--file", str(table), "--device", "cpu", "-q"])
    first, second = capsys.readouterr().out.splitlines()
    assert '"start": 0.1' in first and '"start"' not in second


def test_fine_tuning_keeps_how_sounds_are_prepared(run: Path, clips: Path, tmp_path: Path) -> None:
    words = [*STEPS, f"out={tmp_path}", f"data.train={clips}", f"model.from={run}"]
    recipe = load_recipe("audio_classification", words)[1]
    made = AudioClassificationTraining.read(recipe)
    base = AudioClassificationTraining.read(load_recipe("audio_classification", [*TINY, f"data.train={clips}"])[1])
    assert made.data.preprocess == base.data.preprocess
    with pytest.raises(ConfigError, match="mels = 40"):
        AudioClassificationTraining.read(
            load_recipe("audio_classification", [*words, "audio_classification.mels=40"])[1]
        )


class _Called(SimpleNamespace):
    """A model that is a function."""

    def __init__(self, forward: Any, parts: SimpleNamespace) -> None:
        super().__init__(forward=forward, classify=parts.classify)

    def __call__(self, x: Any) -> Any:
        return self.forward(x)


def test_the_loss_of_a_mixture_weighs_both_labels(clips: Path) -> None:
    words = [*TINY, f"data.train={clips}", "audio_classification.mixup=0.5"]
    training = AudioClassificationTraining.read(load_recipe("audio_classification", words)[1])
    batch = training.batch(np.arange(4))
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))

    seen = []
    model = SimpleNamespace(classify=lambda hidden: logits)

    def forward(x: torch.Tensor) -> Any:
        seen.append(x.shape)
        return SimpleNamespace(hidden=x)

    found = training.loss(_Called(forward, model), *batch.tensors)
    assert seen == [(4, 1, *training.config(None).source.shape[1:])]  # type: ignore[union-attr]
    labels, share = batch.tensors[-3], batch.tensors[6]
    assert labels is not None and share is not None and share[:4].min() > 0 and share[:4].max() < 1
    picked = torch.log_softmax(logits, 1)
    wanted = -sum(share[i] * picked[i, labels[i]] + (1 - share[i]) * picked[i, labels[4 + i]] for i in range(4))
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)


def test_a_request_brings_base64_of_limited_size(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.data.sounds import decode
    from headway.tasks.registry import get_task

    task = get_task("audio_classification")
    raw = wav_bytes(np.zeros(5000, np.float32) + 0.1, 8000)
    example: Any = task.parse_request({"input": base64.b64encode(raw).decode(), "start": 0.1, "end": 0.2})
    assert example.sound == raw and (example.start, example.end) == (0.1, 0.2)
    predictor = task.load_predictor()(headway.load(run))
    assert predictor.predict([example])
    monkeypatch.setattr(decode, "MOST_IN_BYTES", 500)
    with pytest.raises(DataError, match="minutes"):
        predictor.predict([example])
    with pytest.raises(DataError, match="no time"):
        task.parse_request({"input": base64.b64encode(raw).decode(), "start": "x"})


def test_a_sound_classifier_is_no_image_classifier(run: Path) -> None:
    from headway.tasks.registry import fitting

    model = headway.load(run)
    assert next(task.name for task in fitting(model.config)) == "audio_classification"
    with pytest.raises(DataError, match="images"):
        model.rollout(np.zeros((32, 32, 3), np.uint8))
