"""Duplicates within a dataset, and overlap between two datasets, by hashes of texts and of n-grams.

Hashes have 64 bits: a hundred million different texts have a collision in one of some thousand datasets. Beyond MOST
texts a share of all hashes is kept, so memory stays bounded: equal texts are kept, or left out, together.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import splitmix64
from headway.data.profile.folding import Counts
from headway.data.profile.texts import Hashes

NGRAM = 13
"""Words of an n-gram that two texts hardly share by chance (Brown et al. 2020, appendix C)."""
WORD = re.compile(r"\w+")
MOST = 10_000_000
"""Texts whose hashes are kept, at 12 bytes each."""


class DuplicateIndex:
    """Hashes of texts and their places."""

    def __init__(self, most: int = MOST) -> None:
        self._most, self.halvings, self._texts, self._kept = most, 0, 0, 0
        self._parts: list[tuple[Hashes, NDArray[np.uint32]]] = []
        self._files: list[str] = []

    def __len__(self) -> int:
        """All texts, also those whose hash is not kept."""
        return self._texts

    @property
    def compared(self) -> int:
        """Texts whose hash is kept: those with one of 2 ** halvings hashes."""
        return self._kept

    def add(self, hashes: Hashes, file: str, lines: Counts) -> None:
        """Add some texts of a file."""
        self._texts += len(hashes)
        self._append(hashes, file, lines.astype(np.uint32))
        while self._kept > self._most:
            self.halvings += 1
            parts = list(zip(self._parts, self._files, strict=True))
            self._parts, self._files, self._kept = [], [], 0
            for (some, at), name in parts:
                self._append(some, name, at)

    def _append(self, hashes: Hashes, file: str, lines: NDArray[np.uint32]) -> None:
        if self.halvings:
            sampled = _sampled(hashes, self.halvings)
            hashes, lines = hashes[sampled], lines[sampled]
        self._parts.append((hashes, lines))
        self._files.append(file)
        self._kept += len(hashes)

    def hashes(self) -> Hashes:
        return np.concatenate([np.empty(0, dtype=np.uint64), *(some for some, _ in self._parts)])

    def repeats(self, examples: int = 3) -> tuple[int, list[tuple[str, str]]]:
        """Count the texts that repeat an earlier one, scaled up from those compared; and the places of the first ones,
        each with the place of its original."""
        in_order = self.hashes()
        in_order.sort()
        repeated = in_order[1:] == in_order[:-1]
        twice = in_order[1:][repeated & ~np.append(False, repeated)[:-1]]  # each once
        del in_order
        return int(repeated.sum()) << self.halvings, self._places(twice, examples)

    def _places(self, twice: Hashes, examples: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        seen = np.zeros(len(twice), dtype=bool)
        for (hashes, lines), file in zip(self._parts, self._files, strict=True):
            if len(found) == examples:
                break
            rows = np.flatnonzero(_among(hashes, twice))
            which = np.searchsorted(twice, hashes[rows])
            again = np.ones(len(which), dtype=bool)
            again[np.unique(which, return_index=True)[1]] = False  # the first one in this part
            again |= seen[which]
            seen[which] = True
            places = rows[again][: examples - len(found)].tolist()
            found += [(f"{file}:{lines[i]}", self._first(hashes[i])) for i in places]
        return found

    def _first(self, key: np.uint64) -> str:
        """The place of the first text with this hash."""
        parts = zip(self._parts, self._files, strict=True)
        return next(f"{file}:{lines[at[0]]}" for (some, lines), file in parts if len(at := np.flatnonzero(some == key)))

    def count_in(self, other: DuplicateIndex) -> int:
        """Count the texts that also occur in another index, scaled up from the hashes that both keep."""
        halvings = max(self.halvings, other.halvings)
        mine, theirs = (each[_sampled(each, halvings)] for each in (self.hashes(), other.hashes()))
        theirs.sort()
        return int(_among(mine, theirs).sum()) << halvings


def _among(hashes: Hashes, known: Hashes) -> NDArray[np.bool_]:
    """Which hashes are among known ones, which are in order."""
    if not len(known):
        return np.zeros(len(hashes), dtype=bool)
    among: NDArray[np.bool_] = known[np.searchsorted(known, hashes).clip(max=len(known) - 1)] == hashes
    return among


def _sampled(hashes: Hashes, halvings: int) -> NDArray[np.bool_]:
    """Which hashes belong to a share of 1 in 2 ** halvings."""
    sampled: NDArray[np.bool_] = (hashes & np.uint64((1 << halvings) - 1)) == 0
    return sampled


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
