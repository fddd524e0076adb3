"""Captions: the search against a plain loop, metrics, commands, checks of the model, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Image = pytest.importorskip("PIL.Image")

from headway.api import Bundle, load  # noqa: E402
from headway.cli import main  # noqa: E402
from headway.data.images.png import png  # noqa: E402
from headway.data.synthetic.pictures import make_pictures  # noqa: E402
from headway.errors import ConfigError  # noqa: E402
from headway.hub.folder import load_model, own_layout  # noqa: E402
from headway.tasks.caption.predict import CaptionPredictor  # noqa: E402
from headway.tasks.image import ImageExample  # noqa: E402
from headway.tasks.recipe import load_recipe  # noqa: E402
from headway.tasks.training import TaskContext, make_training  # noqa: E402
from headway.train.run import start, train  # noqa: E402

TINY = ("model.depth=1", "model.encoder_depth=2", "model.width=16", "model.heads=2", "train.batch=6", "train.steps=8")
EVERY = ("train.eval_every=8", "caption.eval_texts=4", "caption.beam=2", "train.lr=1e-2", "train.warmup=1")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    rows = []
    for number, picture in enumerate(make_pictures(24, seed=3)):
        (folder / f"{number:02}.png").write_bytes(png(picture.pixels.transpose(1, 2, 0)))
        rows.append({"image": f"{number:02}.png", "caption": picture.caption})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out, log = tmp_path_factory.mktemp("runs"), list[dict[str, Any]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_CACHE", str(out / "cache"))
        recipe = load_recipe("caption", [*TINY, *EVERY, f"out={out}", f"data.train={photos}"])[1]
        done = train(start("run", recipe), lambda kind, **facts: log.append({"event": kind, **facts}))
    return done.folder, log


@pytest.fixture
def model(trained: tuple[Path, list[dict[str, Any]]]) -> Bundle:
    return load(trained[0])


def greedy(model: Bundle, path: Path, most: int = 24) -> str:
    """Token by token, the whole text read again each time."""
    predictor = CaptionPredictor(model)
    pixels = predictor.preprocess.pixels(str(path))
    mean, std = (torch.tensor(each)[:, None, None] for each in predictor.preprocess.normalisation)
    image = ((torch.from_numpy(pixels).float() / 255 - mean) / std)[None]
    special = model.config.special
    assert special.start is not None
    ids = [special.start]
    with torch.no_grad():
        while len(ids) <= most:
            ids.append(int(model.model.lm(model.model(image, torch.tensor([ids])).hidden[:, -1]).argmax()))
            if ids[-1] in special.eos_ids:
                break
    return model.require_tokenizer().decode(ids[1:]).strip()


def test_a_search_of_width_one_is_the_greedy_loop(model: Bundle, photos: Path) -> None:
    for path in sorted(photos.glob("*.png"))[:3]:
        assert model.caption(str(path), width=1) == greedy(model, path)


def test_paths_bytes_arrays_and_pillow_give_the_same(model: Bundle, photos: Path) -> None:
    path = photos / "02.png"
    with Image.open(path) as opened:
        several = [str(path), path.read_bytes(), np.asarray(opened), opened]
        one = model.caption(several[0])
        assert isinstance(one, str) and model.caption(several) == [one] * 4
        assert all(model.caption(each) == one for each in several[1:])


def test_the_best_come_first(model: Bundle, photos: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(model.folder), str(photos / "01.png"), "--beam", "4", "n_best=3", "--json", "-q"]
    with pytest.raises(SystemExit) as caught:
        main(words)
    found = json.loads(capfd.readouterr().out)
    scores = [each["score"] for each in found["best"]]
    assert caught.value.code == 0 and len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert found["caption"] == found["best"][0]["caption"]
    with pytest.raises(SystemExit):
        main(["run", str(model.folder), str(photos / "01.png"), "-q"])
    assert capfd.readouterr().out.strip() == model.caption(str(photos / "01.png"))


def test_evaluation_counts_exact_matches_and_shows_pictures(
    trained: tuple[Path, list[dict[str, Any]]], model: Bundle, photos: Path
) -> None:
    predictor = CaptionPredictor(model)
    found = predictor.examine(str(photos))
    names = [row["new"] for row in found.each]
    right = [row["new"] == row["targets"][0] for row in found.each]
    assert found.examples == 24 and found.metrics["exact_match"][0] == sum(right) / 24
    assert next(iter(found.metrics)) == "bleu" and len(found.details["pictures"]) == 24
    examples = [ImageExample(str(path), path.name) for path in sorted(photos.glob("*.png"))]
    assert names == [each.best[0].text for each in predictor.predict(examples)]
    (last,) = [event for event in trained[1] if event["event"] == "eval"][-1:]
    assert {"valid", "bleu", "exact_match"} <= last.keys()


def test_the_model_is_saved_and_checked(model: Bundle, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "saved")
    assert own_layout(folder) and load_model(folder).config == model.config and load(folder).task == "caption"
    results = list(model.check(compiled=False))
    assert all(result.ok for result in results), [r for r in results if not r.ok]
    assert {"cached = uncached", "beams = reference", "maps = eager weights"} <= {result.name for result in results}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("caption.mixup=0.2",), "C004"),
        (("caption.beam=0",), "C003"),
        (("caption.metric=meteor",), "C003"),
        (("model.positions=alibi",), "C004"),
    ],
)
def test_settings_that_cannot_be(words: tuple[str, ...], code: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_training(TaskContext(load_recipe("caption", [*TINY, *words])[1], tmp_path)).config(None)
    assert caught.value.code == code


def test_a_file_that_is_no_image_is_named_as_a_file(
    model: Bundle, photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An image is not taken for a text; of another file it is told how to read what it lists."""
    (tmp_path / "list.txt").write_text(f"{photos / '01.png'}\n")
    for word, noted in ((photos / "01.png", False), (tmp_path / "list.txt", True)):
        with pytest.raises(SystemExit):
            main(["run", str(model.folder), str(word)])
        assert ("--file" in capfd.readouterr().err) == noted


def test_a_model_of_another_kind_is_no_base(
    trained: tuple[Path, list[dict[str, Any]]], photos: Path, tmp_path: Path
) -> None:
    from headway.config.presets import preset
    from headway.hub.folder import save_model
    from headway.model.model import Transformer

    recipe = load_recipe("caption", [*TINY, f"data.train={photos}"])[1]
    task = make_training(TaskContext(recipe, tmp_path))
    with pytest.raises(ConfigError) as caught:
        task.config(preset("vit-tiny"))
    assert caught.value.code == "C004"
    base = load(trained[0]).config
    assert task.config(base) == base
    save_model(Transformer(preset("vit-tiny")), tmp_path / "vit")
    recipe = load_recipe("caption", [f"data.train={photos}", f"model.from={tmp_path / 'vit'}"])[1]
    with pytest.raises(ConfigError) as refused:
        make_training(TaskContext(recipe, tmp_path))
    assert refused.value.code == "C004" and "vit" in refused.value.message
