"""Word vectors in one file: word2vec's binary format, and its text format, which fastText calls .vec.

    binary  "WORDS WIDTH\\n", then for each word its letters, a space and WIDTH float32, little-endian
    text    "WORDS WIDTH\\n", then for each word a line of its letters and WIDTH numbers

Letters: V words, D width.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.config.model import MAX_VOCAB, MAX_WIDTH
from headway.errors import DamagedError, NotFoundError, counted
from headway.hub.vectors.header import vectors_header
from headway.jsonfile import show
from headway.progress import bar
from headway.resources import replacing, write_error

LONGEST_WORD = 1000
"""Bytes of a word; a file with longer ones is none of word vectors."""


class VectorFile(NamedTuple):
    """What a file holds; of words that stand there twice, the first."""

    words: list[str]
    vectors: NDArray[np.float32]
    """(V, D)"""


def read_vectors(path: Path, *, rows: bool = True) -> VectorFile:
    """Read a file; its size is checked before memory is taken. Without `rows`, the words alone."""
    header = vectors_header(path)
    if header is None:
        raise _damaged(path, "it has no first line with two numbers: words and width")
    count, width = header
    binary = _is_binary(path)
    least = (4 * width + 2) if binary else 2 * width + 1
    if not (0 < count <= MAX_VOCAB and 0 < width <= MAX_WIDTH) or count * least > path.stat().st_size:
        size = f"{path.stat().st_size:,} bytes"
        raise _damaged(path, f"its first line promises {counted(count, 'words')} of {width} numbers, and it has {size}")
    vectors = np.empty((count if rows else 0, width), np.float32)
    words: dict[str, int] = {}
    with (
        bar(f"reading {path.name}"),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw,
    ):
        begin = raw.find(b"\n") + 1
        entries = _binary(path, raw, begin, count, width) if binary else _text(path, raw, begin, count, width)
        for word, values in entries:
            if word in words:
                continue
            if rows:
                vectors[len(words)] = values if binary else _numbers(path, word, values, width)
            words[word] = len(words)
    found = vectors[: len(words)]
    if not np.isfinite(found).all():
        raise _damaged(path, "it has numbers that are not finite")
    return VectorFile(list(words), found)


def _is_binary(path: Path) -> bool:
    """Whether the vectors are numbers of four bytes: a text has a line break after the first word's numbers, and no
    control characters."""
    with path.open("rb") as file:
        file.readline(64)
        head = file.read(4096)
    return any(byte < 32 and byte not in b"\t\n\r" for byte in head) or _not_utf8(head)


def _not_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start < len(head) - 4  # a character may be cut at the end
    return False


def _binary(path: Path, raw: mmap.mmap, at: int, count: int, width: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for number in range(count):
        while raw[at : at + 1] == b"\n":  # word2vec ends a vector with a line break, gensim does not
            at += 1
        space = raw.find(b" ", at, at + LONGEST_WORD)
        end = space + 1 + 4 * width
        if space < 0 or end > len(raw):
            raise _damaged(path, f"it ends, or is damaged, at word {number + 1} of {count:,}")
        yield raw[at:space].decode(errors="replace"), np.frombuffer(raw[space + 1 : end], "<f4")
        at = end


def _text(path: Path, raw: mmap.mmap, at: int, count: int, width: int) -> Iterator[tuple[str, bytes]]:
    raw.seek(at)
    for number in range(count):
        line = raw.readline().rstrip()
        word, _, values = line.partition(b" ")
        if not values:
            raise _damaged(path, f"it ends, or is damaged, at line {number + 2} of {count + 1:,}")
        yield word.decode(errors="replace"), values


def _numbers(path: Path, word: str, values: object, width: int) -> NDArray[np.float32]:
    try:
        found = np.array(bytes(values).split(), np.float32)  # type: ignore[call-overload]
    except ValueError:
        raise _damaged(path, f"the vector of {show(word)} has something that is no number") from None
    if len(found) != width:
        raise _damaged(path, f"the vector of {show(word)} has {counted(len(found), 'numbers')}, and not {width}")
    return np.asarray(found, np.float32)


def _damaged(path: Path, why: str) -> DamagedError:
    hint = "word2vec's formats start with the number of words and their width; of fastText's files, use the .vec"
    return DamagedError("X001", f"{show(path)} is no file of word vectors: {why}", hint)


def new_vector_file(path: Path, text: bool) -> Path:
    """A path that vectors may be written to: not there yet, with an ending that makes it readable again."""
    fits = (".txt", ".vec") if text else (".bin",)
    if os.path.lexists(path):
        raise NotFoundError("F004", f"{show(path)} already exists", "choose another file")
    if path.suffix not in fits:
        raise NotFoundError("F004", f"{show(path)} should end in {' or '.join(fits)}", f"{path.with_suffix(fits[-1])}")
    return path


def write_vectors(path: Path, words: Sequence[str], vectors: NDArray[np.float32], *, binary: bool) -> None:
    """Write a file; it is complete, or not there at all."""
    try:
        with replacing(path) as partial, open(partial, "wb") as file:
            file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
            for word, row in zip(words, vectors.astype("<f4"), strict=True):
                file.write(word.encode() + b" ")
                file.write(row.tobytes() if binary else " ".join(f"{x:.9g}" for x in row.tolist()).encode())
                file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise write_error(path, error) from None
