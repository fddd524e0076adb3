"""Stores of images and sounds: decoded once into a file that every run maps into memory.

    header   JSON, padded with spaces: sizes, and the SHA-256 of values and rows
    values   what all rows were decoded to
    rows     one JSON line per row; then one per flaw

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
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.token_store import VERIFY_ALL_BELOW, cache_folder, prune
from headway.data.blocks.block import in_threads
from headway.data.files.readers import Flaw
from headway.errors import DataError, NotFoundError
from headway.progress import bar
from headway.resources import write_error

FORMAT_VERSION = 2
HEADER = 1024


class _Row(Protocol):
    """An image or a sound of a dataset."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


R = TypeVar("R", bound=_Row)
A = TypeVar("A")


@dataclass(frozen=True)
class Kept:
    """What a store holds."""

    values: NDArray[Any]
    """Flat; mapped from the file."""
    rows: list[list[Any]]
    flaws: list[Flaw]
    digest: str
    """SHA-256 of values and rows."""


def kept(
    rows: Iterable[R | Flaw],
    decode: Callable[[R], NDArray[Any]],
    line: Callable[[R, NDArray[Any]], str],
    key: list[Any],
    *,
    kind: str,
    dtype: type,
    cache: Path | None = None,
) -> Kept:
    """The store of rows; it is built unless there is one. `key` names all that its content depends on.

    `line` is the JSON line of a decoded row. `kind` ("images") names the folder of stores and their files.
    """
    folder = cache if cache is not None else cache_folder().with_name(kind)
    path = folder / f"{hashlib.sha256(json.dumps([FORMAT_VERSION, *key]).encode()).hexdigest()[:32]}.{kind}"
    if (store := _open(path, dtype)) is not None:
        return store
    try:
        _write(path, _body(rows, decode, line, kind))
    except OSError as error:
        raise write_error(folder, error, f"cannot be written, where decoded {kind} are kept") from None
    prune(folder=folder, suffix=f".{kind}")
    store = _open(path, dtype)
    assert store is not None
    return store


def decoded(rows: Iterable[R | Flaw], decode: Callable[[R], A], threads: int = 0) -> Iterator[tuple[R, A] | Flaw]:
    """Rows in order with their values, decoded ahead in threads; a flaw where a row cannot be decoded."""

    def work(row: R | Flaw) -> tuple[R, A] | Flaw:
        if isinstance(row, Flaw):
            return row
        try:
            return row, decode(row)
        except (DataError, NotFoundError) as error:
            return Flaw.of(error, row.file, row.line, seen=True)

    return in_threads((partial(work, row) for row in rows), threads or 2 * (os.cpu_count() or 1))


def digest_of(values: NDArray[Any], lines: Iterable[str]) -> str:
    """SHA-256 of values and the lines of their rows."""
    found = hashlib.sha256(values.tobytes())
    found.update("".join(lines).encode())
    return found.hexdigest()


Body = Callable[[BinaryIO], dict[str, Any]]
"""Writes values and rows into a file; returns the header."""


def _write(path: Path, body: Body) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(8)}")
    file = partial.open("xb")
    try:
        file.write(b" " * HEADER)
        header = body(file)
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


def _body(
    rows: Iterable[R | Flaw], decode: Callable[[R], NDArray[Any]], line: Callable[[R, NDArray[Any]], str], kind: str
) -> Body:
    def body(file: BinaryIO) -> dict[str, Any]:
        digest, lines, flaws, size = hashlib.sha256(), list[str](), list[str](), 0
        with bar(f"decoding {kind}", unit=kind) as tick:
            for found in decoded(rows, decode):
                if isinstance(found, Flaw):
                    flaws.append(json.dumps(asdict(found), default=str) + "\n")
                else:
                    raw = found[1].tobytes()
                    digest.update(raw)
                    file.write(raw)
                    size += len(raw)
                    lines.append(line(*found))
                tick(1)
        text = "".join([*lines, *flaws]).encode()
        digest.update("".join(lines).encode())
        file.write(text)
        return {"values": size, "rows": len(lines), "text": len(text), "sha256": digest.hexdigest()}

    return body


def _open(path: Path, dtype: type) -> Kept | None:
    """The store in a file; None if it is missing or not complete."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(HEADER))
            size, count = header["values"], header["rows"]
            if path.stat().st_size != HEADER + size + header["text"]:
                return None
            file.seek(HEADER + size)
            lines = file.read().decode().splitlines()
        found = [json.loads(line) for line in lines]
        shape = (size // np.dtype(dtype).itemsize,)
        values = np.memmap(path, dtype, "r", HEADER, shape) if size else np.zeros(0, dtype)
        if size < VERIFY_ALL_BELOW and digest_of(values, (f"{line}\n" for line in lines[:count])) != header["sha256"]:
            return None
    except (OSError, ValueError, TypeError, LookupError):
        return None
    with suppress(OSError):
        os.utime(path)
    return Kept(values, found[:count], [Flaw(**each) for each in found[count:]], header["sha256"])
