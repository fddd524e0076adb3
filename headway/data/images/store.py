"""Stores of images: decoded and resized once, as bytes, N × channels × side × side."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.files.readers import Flaw
from headway.data.images.decode import Pixels
from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import ImageRow, stored
from headway.data.media.store import digest_of, kept


@dataclass(frozen=True)
class ImageStore:
    """Images of one size with their rows; the pixels may be mapped from a file."""

    pixels: Pixels
    """(N, channels, side, side)"""
    rows: list[ImageRow]
    flaws: list[Flaw]
    """Images and rows that cannot be used."""
    digest: str
    """SHA-256 of pixels and rows."""

    def __len__(self) -> int:
        return len(self.rows)


def build_store(
    rows: Iterable[ImageRow | Flaw], preprocess: Preprocess, key: str, cache: Path | None = None
) -> ImageStore:
    """The images of rows, decoded, resized and cropped to `preprocess.resize`. `key` names what rows come from."""

    def decode(row: ImageRow) -> Pixels:
        return preprocess.pixels(row.image, row.shown, preprocess.resize)

    about = [key, preprocess.resize, preprocess.how, preprocess.resample, preprocess.channels]
    found = kept(rows, decode, _line, about, kind="images", dtype=np.uint8, cache=cache)
    side = preprocess.resize
    pixels = found.values.reshape(len(found.rows), preprocess.channels, side, side)
    made = [stored(ImageRow(None, *each[:4]), place) for place, each in enumerate(found.rows)]
    return ImageStore(pixels, made, found.flaws, found.digest)


def store_of(images: Pixels, rows: list[ImageRow]) -> ImageStore:
    """Images that are in memory and have the right size."""
    digest = digest_of(images, map(_line, rows))
    return ImageStore(images, [stored(row, place) for place, row in enumerate(rows)], [], digest)


def _line(row: ImageRow, pixels: Any = None) -> str:
    return json.dumps([row.label, row.text, row.file, row.line], ensure_ascii=False) + "\n"
