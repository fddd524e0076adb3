"""Image classification from a folder of photos to a saved model that `transformers` opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Image = pytest.importorskip("PIL.Image")

from headway.api import load  # noqa: E402
from headway.config.model import PatchesConfig  # noqa: E402
from headway.data.images.png import png  # noqa: E402
from headway.data.synthetic.pictures import make_pictures  # noqa: E402
from headway.errors import ConfigError, DataError  # noqa: E402
from headway.model.model import Model  # noqa: E402
from headway.tasks.image_classification.training import ImageClassificationTraining  # noqa: E402
from headway.tasks.recipe import load_recipe  # noqa: E402
from headway.train.run import start, train  # noqa: E402

TINY = ("model.depth=1", "model.width=16", "model.heads=2", "train.batch=4", "train.steps=3", "train.eval_every=3")
KINDS = ("circle", "square")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve photos of two kinds, of unequal size, in a folder for each."""
    for number, picture in enumerate(make_pictures(12, seed=3, kinds=KINDS)):
        path = tmp_path / "photos" / picture.kind / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.pad(picture.pixels.transpose(1, 2, 0), ((0, number), (0, 0), (0, 0)))))
    return tmp_path / "photos"


def run(tmp_path: Path, *words: str) -> tuple[Path, list[dict[str, Any]]]:
    log: list[dict[str, Any]] = []
    recipe = load_recipe("images", [*TINY, f"out={tmp_path / 'runs'}", *words])[1]
    done = train(start("run", recipe), lambda kind, **facts: log.append({"event": kind, **facts}))
    return done.folder, log


def training(*words: str) -> ImageClassificationTraining:
    return ImageClassificationTraining.read(load_recipe("images", [*TINY, *words])[1])


def test_photos_in_folders_and_the_model_in_transformers(photos: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder, log = run(tmp_path, f"data.train={photos}", "model.drop_path=0.3", "data.size=24")
    (data,) = (event for event in log if event["event"] == "data")
    assert (data["samples"], data["valid_samples"], data["labels"], data["size"]) == (11, 1, 2, 24)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    ready = transformers.AutoImageProcessor.from_pretrained(folder)
    path = next(photos.rglob("*.png"))
    with torch.no_grad():
        shares = theirs(**ready(Image.open(path), return_tensors="pt")).logits.softmax(-1)[0]
    found = load(folder).classify(str(path))
    assert theirs.config.id2label == {0: "circle", 1: "square"}
    assert list(found.probabilities.values()) == pytest.approx(shares.tolist(), abs=2e-3)  # they resample in floats


def test_a_pretrained_model_reads_another_size(photos: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4
    )
    base = tmp_path / "vit"
    transformers.ViTForImageClassification(config).save_pretrained(base)
    words = (f"data.train={photos}", f"model.from={base}", "data.size=24")
    recipe = load_recipe("images", ["train.batch=4", "train.steps=2", f"out={tmp_path / 'runs'}", *words])[1]
    model = load(train(start("run", recipe), lambda kind, **facts: None).folder).model
    assert isinstance(model.config.source, PatchesConfig) and model.config.source.image == 24
    assert tuple(model.source.positions.shape) == (37, 16)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="channels"):
        ImageClassificationTraining.read(load_recipe("images", [*words, "data.channels=1"])[1])


def test_a_dataset_in_parts_is_found(photos: Path, tmp_path: Path) -> None:
    every = tmp_path / "parts"
    every.mkdir()
    for part in ("train", "val", "test"):
        (every / part).symlink_to(photos)
    made = training(f"data.train={every}")
    assert len(made.data.train) == len(made.data.valid) == 12 and made.test_part is not None
    assert len(made.test_part) == 12


def test_labels_that_training_lacks_are_named(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "test" / "star").mkdir(parents=True)
    (tmp_path / "test" / "star" / "1.png").write_bytes(next(photos.rglob("*.png")).read_bytes())
    made = training(f"data.train={photos}", f"data.test={tmp_path / 'test'}")
    with pytest.raises(DataError, match="star"):
        made.read_test(made.recipe.data.test)


def test_broken_photos_stop_a_run_or_are_counted(photos: Path) -> None:
    (photos / "circle" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png"):
        training(f"data.train={photos}")
    made = training(f"data.train={photos}", "data.bad_rows=skip")
    assert made.facts["bad_rows"] == 1 and made.facts["samples"] == 11


def test_one_class_or_none_is_an_error(photos: Path) -> None:
    with pytest.raises(DataError, match="nothing to tell apart"):
        training(f"data.train={photos}/circle/*.png")
    with pytest.raises(DataError, match="no labels"):
        training(f"data.train={photos / 'circle'}")


def test_a_class_with_one_image(photos: Path) -> None:
    for path in sorted((photos / "square").iterdir())[1:]:
        path.unlink()
    assert training(f"data.train={photos}").labels == KINDS


@pytest.mark.parametrize("words", [(), ("images.mixup=0.5", "images.cutmix=1"), ("images.policy=rand",)])
def test_parts_of_a_batch_are_the_batch(words: tuple[str, ...]) -> None:
    """Accumulation, processes and workers share a batch out: pixels and loss stay the same."""
    made = training("images.flip=true", "images.crop=0.5", *words)
    torch.manual_seed(0)
    model = make(made)
    samples = np.arange(100, 108)
    whole = made.loss(model, *made.batch(samples).tensors)
    parts = sum(made.loss(model, *made.batch(some).tensors) for some in (samples[:3], samples[3:]))
    torch.testing.assert_close(whole, parts, atol=1e-4, rtol=1e-5)
    assert torch.equal(made.batch(samples).tensors[0][2], made.batch(samples[2:3]).tensors[0][0])  # type: ignore[index]


def make(made: ImageClassificationTraining) -> Model:
    from headway.baselines.build import make_model

    return make_model(made.config(None))


def test_mixed_labels_count_by_their_share() -> None:
    made = training("images.cutmix=1")
    batch = made.batch(np.arange(4))
    images, labels, mixed = batch.tensors[0], batch.tensors[-2], batch.tensors[-3]
    assert images is not None and labels is not None and mixed is not None
    assert len(images) == len(labels) == 8 and batch.count == 4 and 0 <= float(mixed[:, 0].min()) < 1


def test_the_same_images_in_every_format_train_the_same(photos: Path, tmp_path: Path) -> None:
    """A folder and a table of the same files hold the same samples in the same order."""
    files = sorted(photos.rglob("*.png"), key=lambda path: path.relative_to(photos).parts)
    table = tmp_path / "photos.jsonl"
    table.write_text("".join(json.dumps({"image": str(p), "label": p.parent.name}) + "\n" for p in files))
    one, other = (training(f"data.train={spec}") for spec in (photos, table))
    for ours, theirs in zip(one.batch(np.arange(5)).tensors, other.batch(np.arange(5)).tensors, strict=True):
        assert ours is not None and theirs is not None and torch.equal(ours, theirs)


def test_the_report_shows_pictures(tmp_path: Path) -> None:
    from headway.report.report import write_report

    folder, _ = run(tmp_path, "train.sample_every=3")
    page = write_report(folder).read_text()
    assert page.count("data:image/png;base64,") > 5 and (folder / "run" / "samples" / "0000003.png").is_file()


def test_python_takes_paths_arrays_and_images_of_pillow(photos: Path, tmp_path: Path) -> None:
    model = load(run(tmp_path, f"data.train={photos}")[0])
    path = next(photos.rglob("*.png"))
    image = Image.open(path)
    one = model.classify(str(path))
    for same in (path, image, np.asarray(image), path.read_bytes()):
        assert model.classify([same])[0] == one
    with pytest.raises(DataError, match="image 2"):
        model.classify([str(path), None])
