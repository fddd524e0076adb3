"""Texts measured many at a time: characters, bytes, words, and a hash that is equal for equal texts.

Texts are equal if they differ only in case and white space; `folding` says exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.profile.folding import Counts, fold_texts, text_key

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Measured:
    """One number for each text."""

    characters: Counts
    bytes: Counts
    words: Counts
    hashes: Hashes
    nul: bool
    """Whether one of the texts has a NUL character."""

    def take(self, some: Counts) -> Measured:
        return Measured(self.characters[some], self.bytes[some], self.words[some], self.hashes[some], self.nul)


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
    folded, bounds, words, alone = fold_texts(raw, offsets)
    hashes = [hash(folded[a:b]) for a, b in pairwise(bounds.tolist())]
    for i in alone.tolist():
        key = text_key(raw[offsets[i] : offsets[i + 1]])
        hashes[i], words[i] = hash(key), key.count(b" ") + bool(key)
    return Measured(characters, np.diff(offsets), words, np.array(hashes, np.int64).view(np.uint64), b"\0" in raw)
