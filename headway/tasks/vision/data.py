"""The images of a run: train, validation and test stores of one size, and how images are prepared for the model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import PatchesConfig
from headway.config.recipe import DataConfig
from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import hold_out
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.images.augment import middle
from headway.data.images.decode import Pixels, open_image
from headway.data.images.preprocess import BILINEAR, FILE, Preprocess, chw, read_preprocess, resized
from headway.data.images.rows import ImageRow, find_parts, image_files, read_rows
from headway.data.images.store import ImageStore, build_store, store_of
from headway.data.media.store import decoded
from headway.data.synthetic.pictures import SIDE, Picture, make_pictures
from headway.errors import ConfigError, DataError, NotFoundError
from headway.hub.download import resolve, side_file
from headway.hub.folder import open_folder
from headway.model.model import Model
from headway.tasks.recipe import Recipe

MADE_UP = 4800
"""Pictures that are drawn where no data are given."""
Draw = Callable[[int], list[Picture]]
LARGEST = 128
"""The largest side of images that headway chooses for a new model."""
MARGIN = 8 / 7
"""Stored side over the model's, where photos are larger than the model's images: random crops have some room."""
PROBED, MEASURED = 64, 10_000
"""Images by which size and channels are chosen, and images by which they are normalised."""
BATCH = 256
"""Images that are evaluated at a time."""


@dataclass(frozen=True)
class Images:
    """Some images of a store with their rows."""

    store: ImageStore
    rows: list[ImageRow]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def places(self) -> Index:
        return np.array([row.place for row in self.rows], dtype=np.int64)

    def pixels(self, which: Index | slice = slice(None)) -> Tensor:
        """Stored bytes (B, channels, side, side)."""
        return torch.from_numpy(np.ascontiguousarray(self.store.pixels[self.places[which]]))


@dataclass(frozen=True)
class ImageData:
    """The images of a run."""

    preprocess: Preprocess
    train: Images
    valid: Images
    test: str
    """A spec of test images; empty if there are none."""
    about: dict[str, Any]

    @property
    def share(self) -> float:
        """The model's side as a share of the stored side."""
        return self.preprocess.size / self.preprocess.resize

    @cached_property
    def norm(self) -> Tensor:
        """(2, channels): mean and standard deviation."""
        return torch.tensor(self.preprocess.normalisation)

    def read(self, spec: str, data: DataConfig, bad: BadRows) -> Images:
        """Other images, of the same size."""
        store = read_store(spec, data, self.preprocess, bad)
        return Images(store, store.rows)


def load_images(
    recipe: Recipe,
    bad: BadRows,
    usable: Callable[[Sequence[ImageRow]], list[ImageRow]] = list,
    draw: Draw = make_pictures,
) -> ImageData:
    """Read the images of a recipe. `usable` keeps the rows that the task can learn from, and may change labels.

    `draw` makes pictures where no data are given.
    """
    data = recipe.data
    parts = find_parts(data.train) if data.train else {}
    spec, valid, test = parts.get("train", data.train), data.valid or parts.get("valid", ""), data.test
    preprocess = choose_preprocess(recipe, spec)
    store = read_store(spec, data, preprocess, bad) if spec else drawn_store(preprocess.resize, draw)
    preprocess = preprocess if recipe.model.from_ else measured(preprocess, store)
    rows = usable(store.rows)
    if valid:
        held = read_store(valid, data, preprocess, bad)
        train, second = Images(store, rows), Images(held, usable(held.rows))
    else:
        train, second = (Images(store, some) for some in hold_out(rows))
    about = {"train": data.train, "valid": valid, "fingerprint": store.digest, "bad_rows": bad.count}
    return ImageData(preprocess, train, second, test or parts.get("test", ""), about)


def drawn_store(side: int, draw: Draw = make_pictures) -> ImageStore:
    """Pictures that headway draws."""
    made = draw(MADE_UP)
    pixels = np.stack([picture.pixels for picture in made])
    if side != SIDE:
        small = F.interpolate(torch.from_numpy(pixels).float(), size=(side, side), mode="area")
        pixels = small.round().to(torch.uint8).numpy()
    rows = [ImageRow(None, picture.kind, picture.caption, line=i + 1) for i, picture in enumerate(made)]
    return store_of(pixels, rows)


def choose_preprocess(recipe: Recipe, spec: str) -> Preprocess:
    """How images are prepared: as model.from says, or by the recipe and the data; not normalised yet."""
    data = recipe.data
    if recipe.model.from_:
        folder = resolve(recipe.model.from_)
        front = open_folder(folder).config.source
        if not isinstance(front, PatchesConfig) or front.holds != "images":
            raise ConfigError("C004", f"model.from = {recipe.model.from_} does not read images")
        if data.channels and data.channels != front.channels:
            why = f"{recipe.model.from_} reads images with {front.channels} channels"
            raise ConfigError("C004", f"data.channels = {data.channels}, but {why}")
        found = read_preprocess(folder, front.image, front.channels)
        return resized(found, data.size) if data.size else found
    if not spec:
        return Preprocess(data.size or 32, data.size or 32, channels=data.channels or 3)
    side, channels, fixed = _probe(spec, data)
    size = data.size or (side if fixed else min(LARGEST, max(16, side // 16 * 16)))
    larger = not fixed and side > size
    return Preprocess(size, round(size * MARGIN) if larger else size, channels=data.channels or channels)


def _probe(spec: str, data: DataConfig) -> tuple[int, int, bool]:
    """The usual shorter side and the channels of some images, and whether all of them are squares of one size."""
    rows = (row for row in read_rows(spec, data) if isinstance(row, ImageRow))
    sizes, grey = [], True
    for row in islice(rows, PROBED):
        if isinstance(row.image, np.ndarray):
            sizes.append(row.image.shape[:2])
            grey = grey and (row.image.ndim == 2 or row.image.shape[2] == 1)
            continue
        try:
            image = open_image(row.image, row.shown)
        except (DataError, NotFoundError):
            continue  # `read_store` counts it
        sizes.append((image.height, image.width))
        grey = grey and image.mode == "L"
    if not sizes:
        raise DataError("D002", f"{spec}: none of the first images can be read")
    shorter = sorted(min(size) for size in sizes)
    fixed = len({*sizes}) == 1 and sizes[0][0] == sizes[0][1] and sizes[0][0] <= LARGEST
    return shorter[len(shorter) // 2], 1 if grey else 3, fixed


def read_store(spec: str, data: DataConfig, preprocess: Preprocess, bad: BadRows) -> ImageStore:
    """The images of a spec in the stored size; `bad` takes those that cannot be used."""
    rows = read_rows(spec, data)
    first = next(rows, None)
    rows = chain([] if first is None else [first], rows)
    if isinstance(first, ImageRow) and isinstance(first.image, np.ndarray):
        every = [row for row in rows if isinstance(row, ImageRow)]
        shape = first.image.shape
        if shape[:2] == (preprocess.resize,) * 2 and (1 if len(shape) == 2 else shape[2]) == preprocess.channels:
            return store_of(np.stack([chw(row.image) for row in every]), every)
        rows = iter(every)
    store = build_store(rows, preprocess, _stamp(spec, data))
    for flaw in store.flaws:
        bad.add(flaw)
    if not len(store):
        raise bad.no_rows(spec, "images")
    return store


def _stamp(spec: str, data: DataConfig) -> str:
    """What names the content of a spec: its files with their sizes and times, and the columns that are read."""
    found = hashlib.sha256(repr((spec, data.image, data.label, data.text)).encode())
    for path in image_files(spec):
        state = path.stat()
        found.update(f"{os.path.abspath(path)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return found.hexdigest()


def measured(preprocess: Preprocess, store: ImageStore) -> Preprocess:
    """Normalised by the mean and the standard deviation of the images themselves."""
    some = store.pixels[:: max(1, len(store) // MEASURED)].astype(np.float32) / 255
    mean, std = some.mean((0, 2, 3)), some.std((0, 2, 3)).clip(1e-3)
    return replace(preprocess, mean=tuple(float(x) for x in mean), std=tuple(float(x) for x in std))


def file_to_try(images: Images, data: DataConfig) -> str:
    """The file of a held-out image, also where a table names it; empty if images are no files."""
    first = images.rows[0]
    if not first.line or not first.file:
        return first.file
    rows = (row for row in read_rows(first.file, data) if isinstance(row, ImageRow))
    image = next((row.image for row in rows if row.line == first.line), None)
    return image if isinstance(image, str) else ""


def evaluation_batches(count: int) -> list[Index]:
    return [np.arange(at, min(at + BATCH, count)) for at in range(0, count, BATCH)]


def prepared(pixels: Tensor, preprocess: Preprocess, norm: Tensor) -> Tensor:
    """Stored bytes as the model reads them, without augmentation."""
    return normalised(middle(pixels, preprocess.size), norm)


def normalised(x: Tensor, norm: Tensor) -> Tensor:
    """Images from 0 to 1 with mean 0 and variance 1; `norm` (2, channels) holds both."""
    mean, std = norm[0, :, None, None], norm[1, :, None, None]
    return (x - mean) / std


def folder_preprocess(model: Model, folder: Path | None) -> Preprocess:
    """How a trained model's folder says that images are prepared."""
    front = model.config.source
    if not isinstance(front, PatchesConfig) or front.holds != "images":
        raise DataError("D001", "this model does not read images")
    found = None if folder is None else side_file(folder, FILE)
    if found is None:
        return Preprocess(front.image, front.image, "squash", BILINEAR, front.channels)
    return read_preprocess(found.parent, front.image, front.channels)


def decode_images(examples: Sequence[Any], preprocess: Preprocess) -> Tensor:
    """Images of examples (B, channels, size, size), decoded ahead in threads; a DataError names one that is broken."""
    rows = [ImageRow(example.image, file=example.name, line=0) for example in examples]
    found: list[Pixels] = []
    for each in decoded(rows, lambda row: preprocess.pixels(row.image, row.file)):
        if isinstance(each, Flaw):
            where = f"{each.file}: " if each.file else ""
            raise DataError(each.code, f"{where}{each.reason}")
        found.append(each[1])
    return torch.from_numpy(np.stack(found))
