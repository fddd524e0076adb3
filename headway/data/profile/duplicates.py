"""Duplicates within a dataset, and overlap between two datasets, by hashes of texts and of n-grams.

Texts are equal if they differ only in case and white space. Hashes have 64 bits: a hundred million different texts
have a collision in one of some thousand datasets.
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
"""Words of an n-gram that two texts hardly share by chance (Brown et al. 2020, appendix C)."""
WORD = re.compile(r"\w+")


def text_hash(text: str) -> int:
    plain = unicodedata.normalize("NFC", " ".join(text.casefold().split()))
    return int.from_bytes(blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class DuplicateIndex:
    """Hashes of texts and their places, 16 bytes per text."""

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
        """Count the duplicates; return the places of the first ones, each with the place of its original."""
        hashes = self.hashes()
        _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
        original = first[which]  # np.unique gives the first of equal hashes
        again = np.flatnonzero(original != np.arange(len(hashes)))
        return len(again), [(self.place(int(i)), self.place(int(original[i]))) for i in again[:examples]]

    def count_in(self, other: DuplicateIndex) -> int:
        """Count the texts that also occur in another index."""
        return int(np.isin(self.hashes(), other.hashes()).sum())


def ngram_hashes(texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
    """Return a hash for each n-gram of NGRAM words, and the index of its text."""
    words = [WORD.findall(text.casefold()) for text in texts]
    counts = np.array([len(found) for found in words], dtype=np.int64)
    total = int(counts.sum())
    if total < NGRAM:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    encoded = " ".join(chain.from_iterable(words)).encode().split(b" ")  # one call is three times as fast
    codes = splitmix64(np.fromiter(map(zlib.crc32, encoded), dtype=np.uint64, count=total))
    owner = np.repeat(np.arange(len(texts)), counts)
    starts = total - NGRAM + 1
    hashes = np.zeros(starts, dtype=np.uint64)
    for i in range(NGRAM):  # each position has its own factor, so the order of words counts
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + codes[i : i + starts]
    whole = owner[:starts] == owner[NGRAM - 1 :]
    return hashes[whole], owner[:starts][whole]


class NgramIndex:
    """N-grams of one set of texts, to find those that other texts share; memory depends on the first set only."""

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
        """The number of texts with at least one n-gram."""

    def compare(self, texts: Sequence[str]) -> None:
        """Mark the n-grams that occur in these texts."""
        if len(self._known):
            found = ngram_hashes(texts)[0]
            at = np.searchsorted(self._known, found).clip(max=len(self._known) - 1)
            self._hit[at[self._known[at] == found]] = True

    def sharing(self) -> int:
        """Count the texts that share an n-gram with the texts compared."""
        return len(np.unique(self._owner[self._hit[self._which]]))
