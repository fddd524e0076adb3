"""Image stores: images are decoded and resized once into a file of bytes, and every run maps that file into memory.

    header   JSON, padded with spaces: number, shape, and the SHA-256 of pixels and rows
    pixels   uint8, N × channels × side × side
    rows     one JSON line per image: label, caption, file, line; then one per flaw

A file is written under a temporary name, synced and renamed. A file that is not complete is built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headway.data.batching.token_store import VERIFY_ALL_BELOW, cache_folder, prune
from headway.data.blocks.block import in_threads
from headway.data.files.readers import Flaw
from headway.data.images.decode import Pixels
from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import ImageRow, stored
from headway.errors import DataError, NotFoundError
from headway.jsonfile import show
from headway.progress import bar
from headway.resources import write_error

FORMAT_VERSION = 1
HEADER = 1024
SUFFIX = ".images"


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
    recipe = json.dumps(
        [FORMAT_VERSION, key, preprocess.resize, preprocess.how, preprocess.resample, preprocess.channels]
    )
    folder = cache if cache is not None else cache_folder().with_name("images")
    path = folder / f"{hashlib.sha256(recipe.encode()).hexdigest()[:32]}{SUFFIX}"
    if (store := _open(path)) is not None:
        return store
    try:
        _write(path, rows, preprocess)
    except OSError as error:
        raise write_error(folder, error, "cannot be written, where decoded images are kept") from None
    prune(folder=folder, suffix=SUFFIX)
    store = _open(path)
    assert store is not None
    return store


def store_of(images: Pixels, rows: list[ImageRow]) -> ImageStore:
    """Images that are in memory and have the right size."""
    digest = hashlib.sha256(images.tobytes())
    digest.update("".join(map(_line, rows)).encode())
    return ImageStore(images, [stored(row, place) for place, row in enumerate(rows)], [], digest.hexdigest())


def decoded(
    rows: Iterable[ImageRow | Flaw], decode: Callable[[ImageRow], Pixels], threads: int = 0
) -> Iterator[tuple[ImageRow, Pixels] | Flaw]:
    """Rows in order with their pixels, decoded ahead in threads; a flaw where an image cannot be read."""

    def work(row: ImageRow | Flaw) -> tuple[ImageRow, Pixels] | Flaw:
        if isinstance(row, Flaw):
            return row
        try:
            return row, decode(row)
        except (DataError, NotFoundError) as error:
            reason = error.message.removeprefix(show(row.file)).removeprefix(":").strip()
            return Flaw(row.file, row.line, reason, code=error.code, seen=True)

    return in_threads((partial(work, row) for row in rows), threads or 2 * (os.cpu_count() or 1))


def _write(path: Path, rows: Iterable[ImageRow | Flaw], preprocess: Preprocess) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(8)}")
    file = partial.open("xb")
    try:
        header = _write_body(file, rows, preprocess)
        file.seek(0)
        file.write(json.dumps(header).encode().ljust(HEADER))
        file.flush()
        os.fsync(file.fileno())
        file.close()
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            file.close()
        partial.unlink(missing_ok=True)
        raise


def _write_body(file: BinaryIO, rows: Iterable[ImageRow | Flaw], preprocess: Preprocess) -> dict[str, Any]:
    digest, lines, flaws = hashlib.sha256(), list[str](), list[str]()

    def decode(row: ImageRow) -> Pixels:
        return preprocess.pixels(row.image, row.shown, preprocess.resize)

    file.write(b" " * HEADER)
    with bar("decoding images", unit="images") as tick:
        for found in decoded(rows, decode):
            if isinstance(found, Flaw):
                flaws.append(json.dumps(asdict(found), default=str) + "\n")
            else:
                raw = found[1].tobytes()
                digest.update(raw)
                file.write(raw)
                lines.append(_line(found[0]))
            tick(1)
    text = "".join([*lines, *flaws]).encode()
    digest.update("".join(lines).encode())
    file.write(text)
    side = preprocess.resize
    shape = [len(lines), preprocess.channels, side, side]
    return {"shape": shape, "flaws": len(flaws), "text": len(text), "sha256": digest.hexdigest()}


def _line(row: ImageRow) -> str:
    return json.dumps([row.label, row.text, row.file, row.line], ensure_ascii=False) + "\n"


def _open(path: Path) -> ImageStore | None:
    """The store in a file; None if it is missing or not complete."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(HEADER))
            shape, size = tuple(header["shape"]), int(np.prod(header["shape"]))
            if path.stat().st_size != HEADER + size + header["text"]:
                return None
            file.seek(HEADER + size)
            lines = file.read().decode().splitlines()
        values = [json.loads(line) for line in lines]
        pixels = np.memmap(path, np.uint8, "r", HEADER, shape) if size else np.zeros(shape, np.uint8)
        whole = "".join(f"{line}\n" for line in lines[: shape[0]]).encode()
        if size < VERIFY_ALL_BELOW and hashlib.sha256(pixels.tobytes() + whole).hexdigest() != header["sha256"]:
            return None
    except (OSError, ValueError, TypeError, LookupError):
        return None
    with suppress(OSError):
        os.utime(path)
    rows = [stored(ImageRow(None, *each[:4]), place) for place, each in enumerate(values[: shape[0]])]
    return ImageStore(pixels, rows, [Flaw(**each) for each in values[shape[0] :]], header["sha256"])
