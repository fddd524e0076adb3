"""Stores of images: equal to decoding each image alone, built once, and built again if they are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from headway.data.files.readers import Flaw
from headway.data.images.png import png
from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import ImageRow
from headway.data.images.store import ImageStore, build_store
from headway.data.media import store as stores
from headway.data.media.store import decoded

READY = Preprocess(8, 10)


def some_rows(count: int = 9) -> list[ImageRow | Flaw]:
    dice = np.random.default_rng(0)
    pictures = [dice.integers(0, 255, (12 + i, 20, 3), dtype=np.uint8) for i in range(count)]
    found: list[ImageRow | Flaw] = [ImageRow(png(p), i % 3, f"no {i}", "f", i + 1) for i, p in enumerate(pictures)]
    return [*found[:4], ImageRow(b"broken", 0, "", "f", 99), Flaw("f", 100, "missing"), *found[4:]]


def build(folder: Path, key: str = "k") -> ImageStore:
    return build_store(iter(some_rows()), READY, key, folder)


def test_a_store_is_its_images_in_order(tmp_path: Path) -> None:
    made = build(tmp_path)
    good = [row for row in some_rows() if isinstance(row, ImageRow) and row.line != 99]
    assert made.pixels.shape == (9, 3, 10, 10)
    for row, kept in zip(good, made.rows, strict=True):
        assert (kept.label, kept.text, kept.line) == (row.label, row.text, row.line) and kept.image is None
        assert np.array_equal(made.pixels[kept.place], READY.pixels(row.image, side=READY.resize))
    assert sorted(flaw.line for flaw in made.flaws) == [99, 100]


def test_a_store_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path)
    monkeypatch.setattr(stores, "_write", None)
    again = build(tmp_path)
    assert again.digest == first.digest and again.rows == first.rows and np.array_equal(again.pixels, first.pixels)


@pytest.mark.parametrize("damage", ["cut", "pixel", "header"])
def test_a_damaged_store_is_built_again(tmp_path: Path, damage: str) -> None:
    first = build(tmp_path)
    pixels = np.array(first.pixels)  # those of the store are mapped from the file
    (path,) = tmp_path.glob("*.images")
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[:-5]
    else:
        raw[2000 if damage == "pixel" else 3] ^= 1
    path.write_bytes(raw)
    again = build(tmp_path)
    assert again.digest == first.digest and np.array_equal(again.pixels, pixels)


def test_threads_keep_the_order() -> None:
    rows = [row for row in some_rows() if isinstance(row, ImageRow)]
    one, many = (
        [row if isinstance(row, Flaw) else row[0].line for row in decoded(rows, lambda r: READY.pixels(r.image), n)]
        for n in (1, 7)
    )
    assert [each for each in one if isinstance(each, int)] == [each for each in many if isinstance(each, int)]
    assert len(one) == 10
