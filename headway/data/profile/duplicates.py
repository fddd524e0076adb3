"""Texts that occur twice, and texts of one set found in another: hashes are kept, never texts.

Two texts count as equal when they are so up to case and white space. Hashes have 64 bits: among a hundred million
different texts one chance pair in some thousand runs.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import splitmix64

Hashes = NDArray[np.uint64]

NGRAM = 13
"""Words in a row that two texts hardly share by chance (Brown et al. 2020, appendix C)."""
WORD = re.compile(r"\w+")


def text_hash(text: str) -> int:
    plain = unicodedata.normalize("NFC", " ".join(text.casefold().split()))
    return int.from_bytes(blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class DuplicateIndex:
    """Where texts were, by hash: 16 bytes for each."""

    def __init__(self) -> None:
        self._hashes, self._lines = array("Q"), array("Q")
        self._files: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, text: str, file: str, line: int) -> None:
        if not self._files or self._files[-1][1] != file:
            self._files.append((len(self), file))
        self._hashes.append(text_hash(text))
        self._lines.append(line)

    def hashes(self) -> Hashes:
        return np.array(self._hashes, dtype=np.uint64)

    def place(self, index: int) -> str:
        file = self._files[bisect_right(self._files, index, key=lambda entry: entry[0]) - 1][1]
        return f"{file}:{self._lines[index]}"

    def repeats(self, examples: int = 3) -> tuple[int, list[tuple[str, str]]]:
        """How many texts had been there before; where the first of these are, and where each was first."""
        hashes = self.hashes()
        _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
        original = first[which]  # np.unique names the first of equals
        again = np.flatnonzero(original != np.arange(len(hashes)))
        return len(again), [(self.place(int(i)), self.place(int(original[i]))) for i in again[:examples]]

    def count_in(self, other: DuplicateIndex) -> int:
        """How many of the texts occur in another set."""
        return int(np.isin(self.hashes(), other.hashes()).sum())


def ngram_hashes(texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
    """A hash for each stretch of STRETCH words within a text, and the index of the text it is from."""
    words = [WORD.findall(text.casefold()) for text in texts]
    counts = np.array([len(found) for found in words], dtype=np.int64)
    total = int(counts.sum())
    if total < NGRAM:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    encoded = " ".join(chain.from_iterable(words)).encode().split(b" ")  # all at once, which is three times as fast
    codes = splitmix64(np.fromiter(map(zlib.crc32, encoded), dtype=np.uint64, count=total))
    owner = np.repeat(np.arange(len(texts)), counts)
    starts = total - NGRAM + 1
    hashes = np.zeros(starts, dtype=np.uint64)
    for i in range(NGRAM):  # each place has a factor of its own: the order of the words counts
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + codes[i : i + starts]
    whole = owner[:starts] == owner[NGRAM - 1 :]
    return hashes[whole], owner[:starts][whole]


class NgramIndex:
    """Which of some texts share a stretch of words with others: memory goes by the former, the others pass by."""

    def __init__(self, batches: Iterable[Sequence[str]]) -> None:
        self.texts = 0
        hashes, owners = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
        for texts in batches:
            found, owner = ngram_hashes(texts)
            hashes.append(found)
            owners.append(owner + self.texts)
            self.texts += len(texts)
        self._owner = np.concatenate(owners)
        self._known, self._which = np.unique(np.concatenate(hashes), return_inverse=True)
        self._hit = np.zeros(len(self._known), dtype=bool)
        self.long_enough = len(np.unique(self._owner))
        """How many of the texts have a stretch to share."""

    def compare(self, texts: Sequence[str]) -> None:
        """Compare with some of the others."""
        if len(self._known):
            found = ngram_hashes(texts)[0]
            at = np.searchsorted(self._known, found).clip(max=len(self._known) - 1)
            self._hit[at[self._known[at] == found]] = True

    def sharing(self) -> int:
        """How many texts share a stretch with what was looked into."""
        return len(np.unique(self._owner[self._hit[self._which]]))
