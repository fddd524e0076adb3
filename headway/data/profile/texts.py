"""Texts measured many at a time: characters, bytes, words, and a hash that is equal for equal texts.

Texts are equal if they differ only in case and white space. Texts of plain ASCII with single spaces, which are most,
are measured by numpy over all their bytes; the others one by one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Hashes = NDArray[np.uint64]

BLANKS = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f "
"""ASCII characters that Python's `str.split` splits at."""
FOLD = bytes(range(256)).lower().translate(bytes.maketrans(BLANKS, b" " * len(BLANKS)))
"""Every byte → in lower case, and blanks as spaces."""
BEYOND_ASCII = re.compile(rb"[\x80-\xff]+")
ACCENTS = (b"\xcc", b"\xcd")
"""First bytes of the accents that can follow an ASCII letter (U+0300 to U+036F) and be one character with it."""
SHORT = 24
"""Bytes of a run that is likely to come again."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One number for each text."""

    characters: Counts
    bytes: Counts
    words: Counts
    hashes: Hashes


def text_key(raw: bytes) -> bytes:
    """A text, in UTF-8, without what does not count: case folded, each white space one space, accents composed."""
    folded = raw.translate(FOLD)
    if not raw.isascii():
        folded = BEYOND_ASCII.sub(_replaced, folded)
        if ACCENTS[0] in folded or ACCENTS[1] in folded:
            folded = unicodedata.normalize("NFC", folded.decode()).encode()
    return b" ".join(folded.split())


def _folded(run: bytes) -> bytes:
    plain = "".join(" " if letter.isspace() else letter for letter in run.decode().casefold())
    return unicodedata.normalize("NFC", plain).encode()


_known = lru_cache(maxsize=1 << 16)(_folded)


def _replaced(found: re.Match[bytes]) -> bytes:
    run = found[0]
    return _known(run) if len(run) <= SHORT else _folded(run)


def text_array(texts: Sequence[str]) -> Any:
    """Texts as a pyarrow array."""
    import pyarrow

    return pyarrow.array(texts, pyarrow.large_string())


def measure(texts: Any) -> Measured:
    """Measure a pyarrow array of texts without nulls."""
    import pyarrow
    from pyarrow import compute

    texts = texts.cast(pyarrow.large_string())
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset :][: len(texts) + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    offsets = offsets - start
    raw = bytes(memoryview(texts.buffers()[2])[start:end]) if end else b""
    characters = compute.utf8_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes, folded = np.diff(offsets), raw.translate(FOLD)
    words, clean = _words(folded, offsets)
    bounds = offsets.tolist()
    hashes = [hash(folded[a:b]) for a, b in pairwise(bounds)]
    for i in np.flatnonzero((characters != sizes) | ~clean).tolist():
        key = text_key(raw[bounds[i] : bounds[i + 1]])
        hashes[i], words[i] = hash(key), key.count(b" ") + bool(key)
    return Measured(characters, sizes, words, np.array(hashes, dtype=np.int64).view(np.uint64))


def _words(folded: bytes, offsets: Counts) -> tuple[Counts, NDArray[np.bool_]]:
    """The words of each text, and whether that is right: single spaces, and nothing else, stand between them."""
    blank = np.frombuffer(folded, dtype=np.uint8) == ord(" ")
    filled = np.diff(offsets) > 0
    words = np.diff(np.searchsorted(np.flatnonzero(blank), offsets)) + filled
    clean = np.ones(len(words), dtype=bool)
    twice = np.flatnonzero(blank[1:] & blank[:-1])
    clean[np.searchsorted(offsets, twice, side="right") - 1] = False
    clean[filled] &= ~(blank[offsets[:-1][filled]] | blank[offsets[1:][filled] - 1])
    return words, clean
