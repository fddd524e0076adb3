"""Images with sounds: rows of both, made-up scenes, requests, and the table that compares kinds of fusion."""

from __future__ import annotations

import base64
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headway
from headway.cli import main
from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.data.images.png import png
from headway.data.sounds.wav import wav_bytes
from headway.data.synthetic.scenes import COLOURS, FIGURES, make_scenes, scene_of
from headway.errors import ConfigError, DataError, HeadwayError
from headway.tasks.fusion.training import FusionTraining
from headway.tasks.recipe import load_recipe
from headway.tasks.registry import fitting, get_task
from headway.train.run import start, train

SMALL = ("model.depth=1", "model.width=16", "model.heads=2", "train.batch=8", "train.steps=2", "train.warmup=1")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of images with sounds; an image of the third row and a sound of the fifth one are broken."""
    folder = tmp_path_factory.mktemp("pairs")
    lines = ["image,sound,label"]
    for number, scene in enumerate(make_scenes(24, 3)):
        (folder / f"{number}.png").write_bytes(png(scene.pixels.transpose(1, 2, 0)))
        (folder / f"{number}.wav").write_bytes(wav_bytes(scene.samples[: 3000 + 10 * number], scene.rate))
        lines.append(f"{number}.png,{number}.wav,{'ab'[number % 2]}")
    (folder / "2.png").write_bytes(b"no image")
    (folder / "4.wav").write_bytes(b"no sound")
    lines.append("0.png,nowhere.wav,a")
    (folder / "pairs.csv").write_text("\n".join([*lines, ""]))
    return folder


@pytest.fixture(scope="module")
def run(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [*SMALL, f"out={tmp_path_factory.mktemp('runs')}", f"data.train={pairs}/pairs.csv", "data.bad_rows=skip"]
    return train(start("run", load_recipe("fusion", words)[1]), lambda kind, **facts: None).folder


def test_a_scene_is_ambiguous_to_each_alone() -> None:
    answers = defaultdict(set)
    for scene in make_scenes(200):
        answers[scene.label in FIGURES].add(scene.label)
    assert answers == {True: {*FIGURES}, False: {*COLOURS}}
    asked = [scene_of(f"red cross,{sound}") for sound in ("rising", "falling")]
    assert [scene.label for scene in asked] == ["cross", "red"]
    assert np.array_equal(asked[0].pixels, asked[1].pixels)
    assert np.array_equal(scene_of("red bar rising").samples, scene_of("blue circle rising").samples)
    for wrong in ("", "red", "red cross,loud", "cross red rising"):
        with pytest.raises(DataError, match="no scene"):
            scene_of(wrong)


def test_every_image_keeps_its_own_sound(pairs: Path) -> None:
    bad = load_recipe("fusion", [f"data.train={pairs}/pairs.csv"])[1]
    with pytest.raises(DataError, match=r"pairs\.csv line 4"):
        FusionTraining.read(bad)
    training = FusionTraining.read(load_recipe("fusion", [f"data.train={pairs}/pairs.csv", "data.bad_rows=skip"])[1])
    assert training.data.about["bad_rows"] == 3 and len(training.data.train) + len(training.data.valid) == 22
    for part in (training.data.train, training.data.valid):
        for number, (image, sound) in enumerate(zip(part.images.rows, part.sounds.rows, strict=True)):
            assert image.line == sound.line and image.line not in (4, 6)
            assert image.label == "ab"[image.line % 2]  # line 2 holds number 0
            assert len(part.sounds.pcm(number)) == 2 * (3000 + 10 * (image.line - 2))


def test_a_batch_holds_examples_with_their_labels(pairs: Path) -> None:
    training = FusionTraining.read(load_recipe("fusion", [f"data.train={pairs}/pairs.csv", "data.bad_rows=skip"])[1])
    pixels, clips, labels, *_ = training.batch(np.arange(6)).tensors
    assert pixels is not None and clips is not None and labels is not None
    rows = {row.place: i for i, row in enumerate(training.data.train.rows)}
    every = training.data.train.images.pixels()
    for image, clip, label in zip(pixels, clips.numpy(), labels.tolist(), strict=True):
        (match,) = [i for i in rows.values() if bool((every[i] == image).all())]
        pcm, ready = training.data.train.sounds.pcm(match), training.data.sound
        assert training.labels[label] == training.data.train.rows[match].label
        assert np.array_equal(clip, ready.clip(pcm, (len(pcm) - ready.samples) // 2))


def test_inputs(run: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task: Any = get_task("fusion")
    model = headway.load(run)
    assert [each.name for each in fitting(model.config)] == ["fusion"]
    with pytest.raises(SystemExit) as caught:
        main(["run", str(run), f"{pairs}/0.png,{pairs}/0.wav", "scene:red circle,rising", "--json", "--device", "cpu"])
    assert caught.value.code == 0 and len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(SystemExit) as caught:
        main(["run", str(run), "--file", f"{pairs}/pairs.csv", "-q", "--device", "cpu", "data.bad_rows=skip"])
    assert caught.value.code == 0 and len(capsys.readouterr().out.splitlines()) == 22
    coded = {
        "image": base64.b64encode((pairs / "0.png").read_bytes()).decode(),
        "sound": base64.b64encode((pairs / "0.wav").read_bytes()).decode(),
    }
    predictor = task.load_predictor()(model)
    sent, local = task.parse_request({"input": coded}), task.parse({"input": f"{pairs}/0.png,{pairs}/0.wav"})
    assert predictor.predict([sent]) == predictor.predict([local])
    for wrong in (
        {"input": f"{pairs}/0.png,{pairs}/0.wav"},
        {"image": coded["image"]},
        {"input": {"sound": coded["sound"]}},
        {"input": None},
        {"image": f"{pairs}/0.png", "sound": coded["sound"]},
    ):
        with pytest.raises(HeadwayError):
            task.parse_request(wrong)


def test_python_takes_images_and_their_sounds(run: Path, pairs: Path) -> None:
    model = headway.load(run)
    one = model.classify(f"{pairs}/0.png", f"{pairs}/0.wav")
    several = model.classify([pairs / "0.png", pairs / "1.png"], [pairs / "0.wav", pairs / "1.wav"])
    assert len(several) == 2 and several[0].probabilities == pytest.approx(one.probabilities, abs=1e-5)
    for images, sounds in ((f"{pairs}/0.png", None), ([pairs / "0.png"], [pairs / "0.wav"] * 2)):
        with pytest.raises(DataError):
            model.classify(images, sounds)


def test_files_of_both_kinds_are_recorded(pairs: Path) -> None:
    task = get_task("fusion")
    names = {path.name for path in task.files(str(pairs))}
    assert {"0.png", "0.wav", "pairs.csv"} <= names and task.left_out(str(pairs)) == ""
    (pairs / "notes.txt").write_text("hello")
    assert "1 file left out, no images or sounds: notes.txt" in task.left_out(str(pairs))


def test_columns_may_be_named(run: Path, pairs: Path, tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text(f"look,listen\n{pairs}/0.png,{pairs}/0.wav\n")
    task: Any = get_task("fusion")
    found = list(task.inputs(str(table), DataConfig(image="look", sound="listen"), BadRows()))
    assert [item.example.sound for item in found] == [f"{pairs}/0.wav"]
    with pytest.raises(DataError, match="both are needed"):
        list(task.inputs(str(table), DataConfig(), BadRows()))


def test_eval_on_a_table(run: Path, pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", str(run), f"{pairs}/pairs.csv", "--device", "cpu", "-q", "data.bad_rows=skip"]
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0 and "22 examples" in capsys.readouterr().out


def test_modes_are_compared(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, f"out={tmp_path}", f"data.train={pairs}/pairs.csv", "data.bad_rows=skip"]
    with pytest.raises(SystemExit) as caught:
        main(["compare", "fusion", "fusion.mode=sound,image,early,late", *words])
    out = capsys.readouterr().out
    assert caught.value.code == 0 and all(mode in out for mode in ("sound", "image", "early", "late"))


def test_a_pretrained_model_is_refused(run: Path, pairs: Path) -> None:
    words = [f"data.train={pairs}/pairs.csv", "data.bad_rows=skip", f"model.from={run}"]
    with pytest.raises(ConfigError, match="new models only"):
        FusionTraining.read(load_recipe("fusion", words)[1])
