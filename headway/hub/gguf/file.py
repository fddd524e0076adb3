"""The header of a GGUF file: metadata of a model, and where its tensors are.

The `gguf` package has a reader too, but it trusts every count (a count of 2⁶⁰ keeps it busy for ever) and needs seconds
for a vocabulary. headway uses the package for rare quantization formats.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from headway.config.toml import short
from headway.errors import DamagedError, NotFoundError
from headway.hub.gguf.formats import Format, format_of
from headway.jsonfile import AGAIN, show, unreadable

HEADER_LIMIT, VALUES_LIMIT, TENSORS_LIMIT = 256_000_000, 4_000_000, 100_000
"""Bytes of a header, values of all its arrays, and tensors: several times those of the largest models."""
VERSIONS = (2, 3)
MAX_DIMS, MAX_ALIGNMENT = 4, 1 << 16
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type number in the file → letter of `struct`."""
STRING, ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as stored in the file."""

    shape: tuple[int, ...]
    """Slowest axis first, as in torch; the file has the reverse order."""
    format: Format
    begin: int
    end: int


@dataclass(frozen=True, slots=True, weakref_slot=True)
class GGUFFile:
    """A file with its header read and checked; no tensor is read."""

    path: Path
    metadata: dict[str, Any]
    """Numbers, strings, and lists of numbers or of strings."""
    tensors: dict[str, StoredTensor]


_IN_USE: WeakValueDictionary[tuple[object, ...], GGUFFile] = WeakValueDictionary()
"""Files whose headers somebody still holds: a model and its tokenizer are read from one header."""


def open_file(path: Path) -> GGUFFile:
    """The header of a GGUF file, with all counts and offsets checked against the file."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            key = (path, facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if (known := _IN_USE.get(key)) is not None:
                return known
            start = file.read(4)
            if start != b"GGUF":
                raise _damaged(path, f"begins with {start!r}, a GGUF file with b'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                found = _IN_USE[key] = _read(path, raw)
                return found
    except OSError as error:
        raise unreadable(path, error) from error
    except _Damaged as error:
        raise _damaged(path, str(error)) from None


class _Damaged(Exception):
    """A damaged header: what is wrong, in one line."""


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError("X001", f"{show(path)}: {what}", AGAIN)


class _Cursor:
    """Reads a header from its start, never past the end of the file or the limits."""

    def __init__(self, raw: mmap.mmap) -> None:
        self.raw, self.size = raw, len(raw)
        self.place, self.values = 4, 0

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > self.size:
            raise _Damaged(f"cut short: {end:,} bytes of header or more, {self.size:,} in the file")
        if end > HEADER_LIMIT:
            raise _Damaged(f"a header of more than {HEADER_LIMIT:,} bytes")
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
            raise _Damaged(f"text that is not UTF-8, before byte {self.place:,}: {error.reason}") from None

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            found = self.number(SCALARS[kind])
            # the shortest number with this float32: 1e-05, not 9.999999747378752e-06
            return float(str(np.float32(found))) if SCALARS[kind] == "f" else found
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise _Damaged(f"a value of type {kind}; types go up to 12")
        inner, count = self.number("I"), self.number("Q")
        self.values += count
        if self.values > VALUES_LIMIT:
            raise _Damaged(f"lists of more than {VALUES_LIMIT:,} values")
        if inner in SCALARS:
            return self.numbers(SCALARS[inner], count)
        if inner != STRING:
            raise _Damaged(f"a list of values of type {inner}, neither numbers nor texts")
        return self.texts(count)

    def texts(self, count: int) -> list[str]:
        """As many texts as `text` would return one by one, in a quarter of the time: a vocabulary has 100,000."""
        raw, place, limit, found = self.raw, self.place, min(self.size, HEADER_LIMIT), list[str]()
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = place + 8
            if start > limit or (end := start + length_at(raw, place)[0]) > limit:
                self.place = place
                self.text()  # raises the error of this text
            try:
                found.append(raw[start:end].decode())
            except UnicodeDecodeError:
                self.place = place
                self.text()
            place = end
        self.place = place
        return found


def _read(path: Path, raw: mmap.mmap) -> GGUFFile:
    cursor = _Cursor(raw)
    version = cursor.number("I")
    if version not in VERSIONS:
        swapped = " (with the other byte order)" if version & 0xFFFF == 0 else ""
        raise _Damaged(f"version {version}{swapped}; headway reads {VERSIONS[0]} and {VERSIONS[1]}")
    n_tensors, n_metadata = cursor.numbers("Q", 2)
    for what, count in (("tensors", n_tensors), ("facts", n_metadata)):
        if count > TENSORS_LIMIT:
            raise _Damaged(f"{count:,} {what}; the limit is {TENSORS_LIMIT:,}")
    metadata: dict[str, Any] = {}
    for _ in range(n_metadata):
        name, kind = cursor.text(), cursor.number("I")
        if name in metadata:
            raise _Damaged(f"{show(name[:60])} twice")
        metadata[name] = cursor.value(kind)
    if metadata.get("split.count", 1) != 1:
        hint = "join the parts with llama.cpp's gguf-split --merge"
        raise NotFoundError("F002", f"{show(path)} is one of {short(metadata['split.count'])} parts of a model", hint)
    found = [_tensor(cursor) for _ in range(n_tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise _Damaged(f"general.alignment is {short(alignment)}, no power of two up to {MAX_ALIGNMENT}")
    start = math.ceil(cursor.place / alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, shape, kind, offset in found:
        if name in tensors:
            raise _Damaged(f"tensor {show(name[:60])} twice")
        form = _format(name, shape, kind)
        size = math.prod(shape) // form.items * form.size
        tensors[name] = StoredTensor(shape, form, start + offset, start + offset + size)
    _check_places(tensors, cursor.size, alignment, start)
    return GGUFFile(path, metadata, tensors)


def _tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, n_dims = cursor.text(), cursor.number("I")
    if not 0 < n_dims <= MAX_DIMS:
        raise _Damaged(f"tensor {show(name[:60])} has {n_dims:,} axes; there are 1 to {MAX_DIMS}")
    shape = tuple(reversed(cursor.numbers("Q", n_dims)))
    return name, shape, cursor.number("I"), cursor.number("Q")


def _format(name: str, shape: tuple[int, ...], number: int) -> Format:
    """The quantization format of a tensor, if its rows are whole blocks."""
    if not math.prod(shape):
        raise _Damaged(f"tensor {show(name[:60])} has the shape {shape}")
    form = format_of(number)
    if form is None:
        raise _Damaged(f"tensor {show(name[:60])} has quantization format {number}, which headway does not know")
    if shape[-1] % form.items:
        raise _Damaged(f"tensor {show(name[:60])}: rows of {shape[-1]}, in blocks of {form.items}")
    return form


def _check_places(tensors: dict[str, StoredTensor], size: int, alignment: int, start: int) -> None:
    """Check that tensors are inside the file, aligned, and do not overlap."""
    before = start
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].begin):
        if tensor.begin % alignment or tensor.begin < before:
            raise _Damaged(
                f"tensor {show(name[:60])} starts at byte {tensor.begin:,}: not aligned, or it overlaps another"
            )
        if tensor.end > size:
            raise _Damaged(f"cut short: tensor {show(name[:60])} ends at byte {tensor.end:,} of {size:,}")
        before = tensor.end
