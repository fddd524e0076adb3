"""The header of a GGUF file: what llama.cpp writes of a model, and where in the file its tensors are.

It is read here and not by the `gguf` package, whose reader believes every count it finds (a count of 2⁶⁰ keeps it
busy for ever) and takes seconds over a vocabulary. That package knows the ways to quantise.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headway.config.toml import short
from headway.errors import DamagedError, NotFoundError
from headway.jsonfile import AGAIN, show, unreadable

HEADER_LIMIT, VALUES_LIMIT, TENSORS_LIMIT = 256_000_000, 4_000_000, 100_000
"""Bytes of a header, entries of all its arrays together, and tensors: several times those of the largest models."""
VERSIONS = (2, 3)
MAX_DIMS, MAX_ALIGNMENT = 4, 1 << 16
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a type in the file → its letter in `struct`."""
STRING, ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as it lies in the file."""

    shape: tuple[int, ...]
    """Slowest axis first, as torch counts; the file counts the other way round."""
    kind: int
    """Number of the way it is quantised."""
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A file whose header has been read and checked; no tensor has."""

    path: Path
    facts: dict[str, Any]
    """Its metadata: numbers, texts, and lists of one of them."""
    tensors: dict[str, Stored]


BlockSizes = Callable[[int], tuple[int, int] | None]
"""From the number of a way to quantise to the items and bytes of its blocks; None where there is no such way."""


def read_gguf(path: Path, block_sizes: BlockSizes) -> GGUFFile:
    """The header of a GGUF file, every count and place in it checked against the file."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
            if start != b"GGUF":
                raise _damaged(path, f"begins with {start!r}, a GGUF file with b'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                return _read(path, raw, block_sizes)
    except OSError as error:
        raise unreadable(path, error) from error
    except _Wrong as error:
        raise _damaged(path, str(error)) from None


class _Wrong(Exception):
    """What is wrong with a header, in one line."""


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError("X001", f"{show(path)}: {what}", AGAIN)


class _Cursor:
    """Reads from the start of a file, never past its end or the limits."""

    def __init__(self, raw: mmap.mmap) -> None:
        self.raw, self.size = raw, len(raw)
        self.place, self.values = 4, 0

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > self.size:
            raise _Wrong(f"cut short: {end:,} bytes of header or more, {self.size:,} in the file")
        if end > HEADER_LIMIT:
            raise _Wrong(f"a header of more than {HEADER_LIMIT:,} bytes")
        self.place, taken = end, self.raw[self.place : end]
        return taken

    def number(self, letter: str) -> Any:
        return self.numbers(letter, 1)[0]

    def numbers(self, letter: str, count: int) -> list[Any]:
        return list(struct.unpack(f"<{count}{letter}", self.take(count * struct.calcsize(f"<{letter}"))))

    def text(self) -> str:
        try:
            return self.take(self.number("Q")).decode()
        except UnicodeDecodeError as error:
            raise _Wrong(f"text that is not UTF-8, before byte {self.place:,}: {error.reason}") from None

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            found = self.number(SCALARS[kind])
            # as short as it was meant: 1e-05, not the 9.999999747378752e-06 that a float32 has for it
            return float(str(np.float32(found))) if SCALARS[kind] == "f" else found
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise _Wrong(f"a value of type {kind}; types go up to 12")
        inner, count = self.number("I"), self.number("Q")
        self.values += count
        if self.values > VALUES_LIMIT:
            raise _Wrong(f"lists of more than {VALUES_LIMIT:,} values")
        if inner in SCALARS:
            return self.numbers(SCALARS[inner], count)
        if inner != STRING:
            raise _Wrong(f"a list of values of type {inner}, neither numbers nor texts")
        return [self.text() for _ in range(count)]


def _read(path: Path, raw: mmap.mmap, block_sizes: BlockSizes) -> GGUFFile:
    cursor = _Cursor(raw)
    version = cursor.number("I")
    if version not in VERSIONS:
        swapped = " (of a machine with the other byte order)" if version & 0xFFFF == 0 else ""
        raise _Wrong(f"version {version}{swapped}; headway reads {VERSIONS[0]} and {VERSIONS[1]}")
    n_tensors, n_facts = cursor.numbers("Q", 2)
    for what, count in (("tensors", n_tensors), ("facts", n_facts)):
        if count > TENSORS_LIMIT:
            raise _Wrong(f"{count:,} {what}; the limit is {TENSORS_LIMIT:,}")
    facts: dict[str, Any] = {}
    for _ in range(n_facts):
        name, kind = cursor.text(), cursor.number("I")
        if name in facts:
            raise _Wrong(f"{show(name[:60])} twice")
        facts[name] = cursor.value(kind)
    if facts.get("split.count", 1) != 1:
        hint = "join the parts with llama.cpp's gguf-split --merge"
        raise NotFoundError("F002", f"{show(path)} is one of {short(facts['split.count'])} parts of a model", hint)
    found = [_tensor(cursor) for _ in range(n_tensors)]
    alignment = facts.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise _Wrong(f"general.alignment is {short(alignment)}, no power of two up to {MAX_ALIGNMENT}")
    start = math.ceil(cursor.place / alignment) * alignment
    tensors: dict[str, Stored] = {}
    for name, shape, kind, offset in found:
        if name in tensors:
            raise _Wrong(f"tensor {show(name[:60])} twice")
        size = _size(name, shape, kind, block_sizes)
        tensors[name] = Stored(shape, kind, start + offset, start + offset + size)
    _check_places(tensors, cursor.size, alignment, start)
    return GGUFFile(path, facts, tensors)


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, n_dims = cursor.text(), cursor.number("I")
    if not 0 < n_dims <= MAX_DIMS:
        raise _Wrong(f"tensor {show(name[:60])} has {n_dims:,} axes; there are 1 to {MAX_DIMS}")
    shape = tuple(reversed(cursor.numbers("Q", n_dims)))
    return name, shape, cursor.number("I"), cursor.number("Q")


def _size(name: str, shape: tuple[int, ...], kind: int, block_sizes: BlockSizes) -> int:
    """The bytes a tensor takes."""
    items = math.prod(shape)
    if not items:
        raise _Wrong(f"tensor {show(name[:60])} has the shape {shape}")
    sizes = block_sizes(kind)
    if sizes is None:
        raise _Wrong(f"tensor {show(name[:60])} is quantised in way {kind}, which headway does not know")
    if shape[-1] % sizes[0]:
        raise _Wrong(f"tensor {show(name[:60])}: rows of {shape[-1]}, in blocks of {sizes[0]}")
    return items // sizes[0] * sizes[1]


def _check_places(tensors: dict[str, Stored], size: int, alignment: int, start: int) -> None:
    """Each inside the file, on its boundary, none over another."""
    before = start
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].begin):
        if tensor.begin % alignment or tensor.begin < before:
            raise _Wrong(f"tensor {show(name[:60])} begins at byte {tensor.begin:,}: off its boundary or over another")
        if tensor.end > size:
            raise _Wrong(f"cut short: tensor {show(name[:60])} ends at byte {tensor.end:,} of {size:,}")
        before = tensor.end
