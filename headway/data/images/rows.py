"""Rows of images: a folder per class, a table with a column of paths or bytes, or arrays; with labels and captions."""

from __future__ import annotations

import base64
import binascii
import glob
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.files.columns import CAPTION, IMAGE, IMAGE_LABEL, find_columns
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import peek
from headway.data.images.arrays import IDX, idx_images, npz_parts, read_idx, read_npz
from headway.data.synthetic.pictures import KINDS, make_pictures
from headway.errors import DataError, NotFoundError, nearest
from headway.jsonfile import show

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jfif", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".avif"}
)
"""Endings of image files."""
TABLES = ("csv", "tsv", "jsonl", "json", "parquet", "sheet")
PARTS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "valid": ("valid", "val", "validation", "dev"),
    "test": ("test", "testing", "t10k", "eval"),
}
"""Parts of a dataset → names of their folders, files and arrays."""
IMAGE_COLUMNS = IMAGE.names
"""Names under which a row or a request has its image."""
METADATA = "metadata"
"""The table that `datasets` reads beside the images of a folder."""
DRAWN = "drawn:"
"""`drawn:circle` is a picture that headway draws, to try a model with."""
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)


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
    inside = {each.name.lower(): each for each in sorted(path.iterdir()) if not each.name.startswith(".")}
    folders = {name for name, each in inside.items() if each.is_dir()}
    if folders - {name for names in PARTS.values() for name in names}:
        return {}  # folders of classes, of which one may be called train
    parts: dict[str, str] = {}
    for part, names in PARTS.items():
        folder = next((inside[name] for name in names if name in inside and inside[name].is_dir()), None)
        arrays = (each for each in idx_images(path) if _part_of(each.name) == part)
        tables = (each for each in inside.values() if _is_array_or_table(each) and _part_of(each.name) == part)
        if (found_at := folder or next(arrays, None) or next(tables, None)) is not None:
            parts[part] = str(found_at)
    return parts if "train" in parts else {}


def _part_of(name: str) -> str:
    """The part that a file's name begins with: t10k-images-idx3-ubyte, train-00000-of-00002.parquet."""
    word = re.split(r"[^a-z0-9]", name.lower(), maxsplit=1)[0]
    return next((part for part, names in PARTS.items() if word in names), "")


def _is_array_or_table(path: Path) -> bool:
    return path.is_file() and (path.suffix.lower() == ".npz" or file_format(path)[0] in TABLES)


def image_files(spec: str) -> list[Path]:
    """Every file of a spec that rows come from, in order: what a run records."""
    path = Path(os.path.expanduser(_split(spec)[0]))
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [each for each in _below(path) if each.suffix.lower() in SUFFIXES or _is_array_or_table(each)]
        return found + [each for each in _below(path) if "-idx" in each.name.lower()]
    return matching_images(spec) or find_files(spec)


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
    if pictures := matching_images(spec):
        yield from (ImageRow(str(each), each.parent.name or None, file=str(each)) for each in pictures)
        return
    for path in find_files(spec):
        yield from _table_rows(path, data)


def matching_images(spec: str) -> list[Path]:
    """The image files that a glob matches."""
    pattern = os.path.expanduser(spec)
    found = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []
    return [Path(each) for each in found if Path(each).suffix.lower() in SUFFIXES]


def _folder_rows(folder: Path, data: DataConfig) -> Iterator[ImageRow | Flaw]:
    """A folder per class; or a table beside the images; or arrays."""
    files = _below(folder)
    tables = [path for path in files if path.is_file() and file_format(path)[0] in TABLES]
    pictures = [path for path in files if path.suffix.lower() in SUFFIXES]
    listed = [path for path in tables if path.name.lower().split(".")[0] == METADATA]
    if listed or (tables and not pictures):
        for path in listed or tables:
            yield from _table_rows(path, data)
        return
    arrays = idx_images(folder)
    if not pictures and arrays:
        for path in arrays:
            yield from _array_rows(path, *read_idx(path))
        return
    if not pictures:
        ends = ", ".join(sorted(SUFFIXES))
        raise DataError("D002", f"{show(folder)}: no images in this folder", f"headway reads {ends}; npz, idx, tables")
    for path in pictures:
        inner = path.relative_to(folder).parts
        yield ImageRow(str(path), inner[0] if len(inner) > 1 else None, file=str(path))


def _below(folder: Path) -> list[Path]:
    """Files below a folder, sorted; hidden ones are left out."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in sorted(names) if not name.startswith(".")]
    return found


def other_files(folder: str) -> list[str]:
    """Files of a folder of images that are no images: they are left out, and counted."""
    root = Path(os.path.expanduser(folder))
    if not root.is_dir():
        return []
    used = {*image_files(folder)}
    return [path.relative_to(root).as_posix() for path in _below(root) if path not in used]


def _array_rows(path: Path, images: Any, labels: Any) -> Iterator[ImageRow]:
    for i, image in enumerate(images):
        yield ImageRow(image, None if labels is None else labels[i].item(), file=str(path), line=i + 1)


def _table_rows(path: Path, data: DataConfig) -> Iterator[ImageRow | Flaw]:
    rows, first = peek(path)
    image, label, text = find_columns(path, [row.values for row in first], (IMAGE, IMAGE_LABEL, CAPTION), data)
    names = _class_names(path, label)
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


def _class_names(path: Path, label: str) -> dict[int, str]:
    """Names of labels in a parquet file that `datasets` has written, which holds their numbers."""
    if not label or file_format(path)[0] != "parquet":
        return {}
    import json

    from pyarrow import parquet

    try:
        found = json.loads((parquet.read_schema(path).metadata or {})[b"huggingface"])["info"]["features"][label]
        return {i: str(name) for i, name in enumerate(found["names"])}
    except (KeyError, TypeError, ValueError):
        return {}


def parse_image(value: Any, folder: Path | None) -> Any:
    """An image in a row or request: a path, bytes, base64, `drawn:circle`, or `datasets`' {"bytes", "path"}.

    Paths are relative to `folder`; without one they are refused, since a request must not read files of the server.
    """
    if isinstance(value, Mapping):
        value = value["bytes"] if value.get("bytes") is not None else value.get("path")
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and value.startswith(DRAWN):
        return _drawn(value.removeprefix(DRAWN))
    if not isinstance(value, str) or not value.strip():
        raise DataError("D001", "expected an image: a path, or the bytes of a file")
    if DATA_URL.match(value) or folder is None:
        return _decoded(value)
    path = Path(os.path.expanduser(value))
    path = path if path.is_absolute() else folder / path
    if not path.is_file():
        names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        raise NotFoundError("F001", f"no such file: {show(path)[-200:]}{nearest(path.name, names)}")
    return str(path)


def _drawn(kind: str) -> Any:
    """A picture of a kind that headway draws, other than those that it trains on."""
    if kind not in KINDS:
        what = f"headway draws no {kind[:40]!r}{nearest(kind, KINDS)}"
        raise DataError("D001", what, f"it draws {', '.join(KINDS)}")
    return make_pictures(1, seed=1, kinds=(kind,))[0].pixels.transpose(1, 2, 0)


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(DATA_URL.sub("", value, count=1), validate=True)
    except (binascii.Error, ValueError):
        what = f"{value[:40]!r} is no image in base64"
        raise DataError("D001", what, "send base64, or a data URL: data:image/png;base64,…") from None


def stored(row: ImageRow, place: int) -> ImageRow:
    """A row whose pixels are in a store."""
    return replace(row, image=None, place=place)
