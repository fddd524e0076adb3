"""Rows of images: a folder per class, a table with a column of paths or bytes, or arrays; with labels and captions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.files.columns import CAPTION, IMAGE, IMAGE_LABEL, find_columns
from headway.data.files.locate import find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import peek
from headway.data.images.arrays import IDX, idx_images, npz_parts, read_idx, read_npz
from headway.data.media.listing import PARTS, below, divided, is_table, label_of, listing, matching, others
from headway.data.media.values import class_names, parse_media
from headway.data.synthetic.pictures import KINDS, make_pictures
from headway.errors import DataError, NotFoundError, nearest
from headway.jsonfile import show

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jfif", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".avif"}
)
"""Endings of image files."""
IMAGE_COLUMNS = IMAGE.names
"""Names under which a row or a request has its image."""
DRAWN = "drawn:"
"""`drawn:circle` is a picture that headway draws, to try a model with."""


@dataclass(frozen=True, slots=True)
class ImageRow:
    """An image with what is known of it."""

    image: Any
    """A path, the bytes of a file, or an array of pixels; None once a store has its pixels."""
    label: Any = None
    text: str = ""
    """A caption."""
    file: str = ""
    line: int = 0
    """The row of a table or array, from 1; 0 for a file of its own."""
    place: int = 0
    """Where a store has the pixels."""

    @property
    def shown(self) -> str:
        """What a person knows it by."""
        return f"{Path(self.file).name}:{self.line}" if self.line and self.file else self.file or f"image {self.line}"


def find_parts(spec: str) -> dict[str, str]:
    """The parts of a dataset that a folder or an npz file holds, each as a spec; empty if it is not divided."""
    path = Path(os.path.expanduser(spec))
    if path.suffix.lower() == ".npz" and path.is_file():
        found = npz_parts(path, PARTS)
        return {part: f"{spec}#{part}" for part in found} if len(found) > 1 else {}
    if not path.is_dir():
        return {}
    return divided(path, _is_array_or_table)


def _is_array_or_table(path: Path) -> bool:
    array = path.suffix.lower() == ".npz" or IDX.fullmatch(path.name) is not None
    return is_table(path) or (array and path.is_file())


def image_files(spec: str) -> list[Path]:
    """Every file of a spec that rows come from, in order: what a run records."""
    path = Path(os.path.expanduser(_split(spec)[0]))
    if path.is_file():
        return [path]
    if path.is_dir():
        every = [each for each in below(path) if each.is_file()]  # and no link to nothing
        found = [each for each in every if each.suffix.lower() in SUFFIXES or _is_array_or_table(each)]
        return found + [each for each in every if "-idx" in each.name.lower() and each not in found]
    return matching(spec, SUFFIXES) or find_files(spec)


def read_rows(spec: str, data: DataConfig) -> Iterator[ImageRow | Flaw]:
    """The images of a spec in order; a flaw in place of a row that cannot be used. Nothing is decoded yet."""
    name, part = _split(spec)
    path = Path(os.path.expanduser(name))
    if path.suffix.lower() == ".npz" and path.is_file():
        yield from _array_rows(path, *read_npz(path, part or "train", PARTS.get(part, ("train",))))
    elif IDX.fullmatch(path.name) and path.is_file():
        yield from _array_rows(path, *read_idx(path))
    elif path.is_dir():
        yield from _folder_rows(path, data)
    elif path.is_file() and path.suffix.lower() in SUFFIXES:
        yield ImageRow(str(path), file=str(path))
    else:
        yield from _found_rows(spec, data)


def _split(spec: str) -> tuple[str, str]:
    """The file and the part of `file.npz#test`."""
    name, mark, part = spec.rpartition("#")
    return (name, part) if mark and part in PARTS else (spec, "")


def _found_rows(spec: str, data: DataConfig) -> Iterator[ImageRow | Flaw]:
    """Rows of a glob, a table or a dataset of the hub."""
    if pictures := matching(spec, SUFFIXES):
        yield from (ImageRow(str(each), each.parent.name or None, file=str(each)) for each in pictures)
        return
    for path in find_files(spec):
        yield from _table_rows(path, data)


def _folder_rows(folder: Path, data: DataConfig) -> Iterator[ImageRow | Flaw]:
    """A folder per class; or a table beside the images; or arrays."""
    found, arrays = listing(folder, SUFFIXES), idx_images(folder)
    if found.tables:
        for path in found.tables:
            yield from _table_rows(path, data)
    elif found.files:
        for path in found.files:
            yield ImageRow(str(path), label_of(path, folder), file=str(path))
    elif arrays:
        for path in arrays:
            yield from _array_rows(path, *read_idx(path))
    else:
        ends = ", ".join(sorted(SUFFIXES))
        raise DataError("D002", f"{show(folder)}: no images in this folder", f"headway reads {ends}; npz, idx, tables")


def other_files(folder: str) -> list[str]:
    """Files of a folder of images that are no images."""
    return others(folder, image_files(folder)) if Path(os.path.expanduser(folder)).is_dir() else []


def _array_rows(path: Path, images: Any, labels: Any) -> Iterator[ImageRow]:
    for i, image in enumerate(images):
        yield ImageRow(image, None if labels is None else labels[i].item(), file=str(path), line=i + 1)


def _table_rows(path: Path, data: DataConfig) -> Iterator[ImageRow | Flaw]:
    rows, first = peek(path)
    image, label, text = find_columns(path, [row.values for row in first], (IMAGE, IMAGE_LABEL, CAPTION), data)
    names = class_names(path, label)
    for row in rows:
        yield row if isinstance(row, Flaw) else _table_row(row, path.parent, image, label, text, names)


def _table_row(row: Row, folder: Path, image: str, label: str, text: str, names: Mapping[int, str]) -> ImageRow | Flaw:
    value = row.values.get(label) if label else None
    said = row.values.get(text) if text else ""
    said = said[0] if isinstance(said, list) and said else said  # several captions: the first
    try:
        source = parse_image(row.values.get(image), folder)
    except (DataError, NotFoundError) as error:
        return Flaw(row.file, row.line, error.message, image)
    value = names.get(value, value) if type(value) is int else value
    return ImageRow(source, value, said if isinstance(said, str) else "", row.file, row.line)


def parse_image(value: Any, folder: Path | None) -> Any:
    """An image in a row or request: a path, bytes, base64, `drawn:circle`, or `datasets`' {"bytes", "path"}.

    Paths are relative to `folder`; without one they are refused, since a request must not read files of the server.
    """
    if isinstance(value, str) and value.startswith(DRAWN):
        return _drawn(value.removeprefix(DRAWN))
    return parse_media(value, folder, "image")


def _drawn(kind: str) -> Any:
    """A picture of a kind that headway draws, other than those that it trains on."""
    if kind not in KINDS:
        what = f"headway draws no {kind[:40]!r}{nearest(kind, KINDS)}"
        raise DataError("D001", what, f"it draws {', '.join(KINDS)}")
    return make_pictures(1, seed=1, kinds=(kind,))[0].pixels.transpose(1, 2, 0)


def stored(row: ImageRow, place: int) -> ImageRow:
    """A row whose pixels are in a store."""
    return replace(row, image=None, place=place)
