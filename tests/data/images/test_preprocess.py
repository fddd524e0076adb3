"""Images prepared as `transformers` prepares them, from the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
transformers = pytest.importorskip("transformers")

from headway.data.images.preprocess import FILE, Preprocess, read_preprocess  # noqa: E402
from headway.errors import ConfigError  # noqa: E402

DICE = np.random.default_rng(0)
PHOTOS = [DICE.integers(0, 255, shape, dtype=np.uint8) for shape in ((50, 70, 3), (71, 40, 3), (32, 32, 3))]
PHOTOS = [np.asarray(Image.fromarray(photo).resize((photo.shape[1] * 2, photo.shape[0] * 2), 3)) for photo in PHOTOS]
PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
    "deit": ("DeiTImageProcessor", {"size": {"height": 36, "width": 36}, "crop_size": {"height": 32, "width": 32}}),
    "dinov2": ("BitImageProcessor", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}),
    "clip": ("CLIPImageProcessor", {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}),
}


def theirs(name: str, options: dict[str, Any]) -> Any:
    """Their processor with Pillow behind it; another backend resamples differently."""
    kind = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)
    return kind(**options)


def normalised(ready: Preprocess, photo: Any) -> Any:
    mean, std = (np.array(each)[:, None, None] for each in ready.normalisation)
    return (ready.pixels(photo) / 255 - mean) / std


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_theirs(name: str, tmp_path: Path) -> None:
    processor = theirs(*PROCESSORS[name])
    processor.save_pretrained(tmp_path)
    ready = read_preprocess(tmp_path, 32, 3)
    for photo in PHOTOS:
        expected = np.asarray(processor(Image.fromarray(photo), return_tensors="np")["pixel_values"][0])
        found = normalised(ready, photo)
        assert found.shape == expected.shape == (3, 32, 32)
        assert np.abs(found - expected).max() < 1e-5, name


@pytest.mark.parametrize("ready", [Preprocess(24, 28), Preprocess(24, 24, "squash", 2), Preprocess(24, 30, "squash")])
def test_what_is_written_is_read_back_and_theirs_reads_it(ready: Preprocess, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(ready.to_dict()))
    again = read_preprocess(tmp_path, 24, 3)
    for photo in PHOTOS:
        assert np.array_equal(again.pixels(photo), ready.pixels(photo))
    options = {k: v for k, v in ready.to_dict().items() if k != "image_processor_type"}
    processor = theirs(ready.to_dict()["image_processor_type"], options)
    expected = processor(Image.fromarray(PHOTOS[0]), return_tensors="np")["pixel_values"][0]
    assert np.abs(normalised(ready, PHOTOS[0]) - np.asarray(expected)).max() < 1e-5


def test_another_size_keeps_the_share_of_the_crop(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(Preprocess(224, 256).to_dict()))
    found = read_preprocess(tmp_path, 112, 3)
    assert (found.size, found.resize) == (112, 128)


def test_grey_models_and_folders_without_the_file(tmp_path: Path) -> None:
    plain = read_preprocess(tmp_path, 28, 1)
    assert plain.pixels(PHOTOS[0]).shape == (1, 28, 28) and plain.normalisation == ([0.5], [0.5])


@pytest.mark.parametrize(
    "wrong", [{"size": {"height": 20, "width": 30}}, {"size": "large"}, {"image_mean": "x"}, {"size": {"height": -1}}]
)
def test_what_cannot_be_followed_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(Preprocess(24, 24).to_dict() | wrong))
    with pytest.raises(ConfigError):
        read_preprocess(tmp_path, 24, 3)
