"""Preprocessing: how a decoded image becomes the square that a model reads; preprocessor_config.json holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.data.images.decode import Pixels, open_image
from headway.errors import ConfigError
from headway.jsonfile import read_json

FILE = "preprocessor_config.json"
BILINEAR, BICUBIC = 2, 3
"""Pillow's numbers for ways to resample, which the files have."""
SQUASHES = (
    "ViTImageProcessor",
    "ViTFeatureExtractor",
    "DeiTImageProcessor",
    "DeiTFeatureExtractor",
    "SiglipImageProcessor",
)
"""Processors for which a single number is the height and the width, and not the shorter side."""


@dataclass(frozen=True)
class Preprocess:
    """Resize to `resize` pixels, crop the middle `size` of them, normalise each channel."""

    size: int
    """Side of the square that the model reads."""
    resize: int
    """Side before the crop."""
    how: Literal["squash", "shorter"] = "shorter"
    """squash: height and width become `resize`; shorter: the shorter side does, and the crop takes the middle."""
    resample: int = BICUBIC
    channels: int = 3
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def pixels(self, source: Any, name: str = "", side: int = 0) -> Pixels:
        """An image as (channels, size, size); `side` crops less: up to `resize`."""
        image = open_image(source, name).convert("L" if self.channels == 1 else "RGB")
        width, height = image.size
        if self.how == "squash":
            new = (self.resize, self.resize)
        elif width <= height:
            new = (self.resize, int(self.resize * height / width))
        else:
            new = (int(self.resize * width / height), self.resize)
        if new != image.size:
            image = image.resize(new, resample=self.resample)
        array = np.asarray(image)
        return chw(middle(array, side or self.size))

    @property
    def normalisation(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel."""
        return [*_spread(self.mean, self.channels)], [*_spread(self.std, self.channels)]

    def to_dict(self) -> dict[str, Any]:
        """As `transformers` reads it."""
        mean, std = self.normalisation
        squash = self.how == "squash"
        size = {"height": self.resize, "width": self.resize} if squash else {"shortest_edge": self.resize}
        crop = {"do_center_crop": True, "crop_size": {"height": self.size, "width": self.size}}
        return {
            "image_processor_type": "ViTImageProcessor" if squash and self.resize == self.size else "BitImageProcessor",
            **{"do_convert_rgb": self.channels == 3, "do_resize": True, "size": size, "resample": self.resample},
            **({} if squash and self.resize == self.size else crop),
            **{"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True},
            **{"image_mean": mean, "image_std": std},
        }


def chw(array: Pixels) -> Pixels:
    """(height, width) or (height, width, channels) with the channels first."""
    return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))


def middle(array: Pixels, side: int) -> Pixels:
    """The middle square of an image."""
    top, left = ((length - side) // 2 for length in array.shape[:2])
    return array[top : top + side, left : left + side]


def resized(preprocess: Preprocess, size: int) -> Preprocess:
    """The same for images of another size: the share that the crop keeps stays."""
    return replace(preprocess, size=size, resize=round(preprocess.resize * size / preprocess.size))


def read_preprocess(folder: Path, size: int, channels: int) -> Preprocess:
    """How a model folder says that images are prepared; without the file, squashed to the model's size."""
    if not (folder / FILE).is_file():
        return Preprocess(size, size, "squash", BILINEAR, channels)
    return preprocess_from(read_json(folder / FILE), size, channels)


def preprocess_from(values: Mapping[str, Any], size: int, channels: int) -> Preprocess:
    """The same, of a file's values."""
    kind = str(values.get("image_processor_type", values.get("feature_extractor_type", "")))
    how, resize = _resize(values.get("size", size), kind.removesuffix("Fast"))
    crop = values.get("crop_size", size) if values.get("do_center_crop", kind.startswith(("Bit", "CLIP"))) else resize
    crop = crop.get("height", size) if isinstance(crop, Mapping) else crop
    if not values.get("do_resize", True):
        how, resize = "shorter", int(crop)
    for name, value in (("size", resize), ("crop_size", crop)):
        if type(value) is not int or not 1 <= value <= 1 << 14:
            raise ConfigError("C003", f"{FILE}: {name} = {value!r} is no size in pixels")
    if how == "shorter" and crop == resize and not values.get("do_center_crop", True):
        raise ConfigError("C022", f"{FILE}: images keep their shape there; headway reads squares, so set a crop_size")
    found = Preprocess(int(crop), resize, how, int(values.get("resample", BILINEAR)), channels)
    if values.get("do_normalize", True):
        mean, std = (_numbers(values.get(name, [0.5]), name) for name in ("image_mean", "image_std"))
        found = replace(found, mean=mean, std=std)
    else:
        found = replace(found, mean=(0.0,), std=(1.0,))
    return found if found.size == size else resized(found, size)


def _resize(size: Any, kind: str) -> tuple[Literal["squash", "shorter"], int]:
    if isinstance(size, Mapping):
        if "shortest_edge" in size:
            return "shorter", size["shortest_edge"]
        if size.get("height") != size.get("width"):
            raise ConfigError("C022", f"{FILE}: size = {dict(size)}; headway knows squares")
        return "squash", size.get("height", 0)
    return ("squash" if kind in SQUASHES else "shorter"), size


def _numbers(value: Any, name: str) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(each, int | float) for each in values):
        raise ConfigError("C003", f"{FILE}: {name} = {value!r} is no list of numbers")
    return tuple(float(each) for each in values)


def _spread(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """One number for each channel; one number, or the mean of those for RGB, stands for all."""
    if len(values) == channels:
        return values
    return (sum(values) / len(values),) * channels
