"""Documents as rows of a batch: several to a row, packed, or one to a row, padded.

Both read as (inputs, targets, segment_ids): 1, 2, … for the pieces of a row and 0 for padding.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.batching.windows import Ids, Tokens
from headway.errors import DataError

IGNORE = -100
"""Target of a position that does not count; the losses have the same number."""
PAD_MULTIPLE = 8
"""Padded rows are as wide as a multiple of this, the step in which GPUs like their matrices."""

Rows = tuple[Ids, Ids, Ids]
"""Inputs, targets, segment ids (n, width)."""


@dataclass(frozen=True)
class Packing:
    """Pieces of documents, row after row; piece p is tokens start[p] … start[p] + length[p] - 1 of document[p]."""

    document: Index
    start: Index
    length: Index
    row_starts: Index
    """Where each row begins among the pieces, and at the end their number."""
    capacity: int

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def row(self, number: int) -> list[tuple[int, int, int]]:
        """(document, start, length) of each piece in a row, from left to right."""
        here = slice(int(self.row_starts[number]), int(self.row_starts[number + 1]))
        pieces = (self.document[here], self.start[here], self.length[here])
        return list(zip(*(part.tolist() for part in pieces), strict=True))

    @property
    def fill(self) -> float:
        """Share of the tokens that are real; the rest is padding."""
        return float(self.length.sum()) / max(1, len(self) * self.capacity)


def pack(lengths: Index, capacity: int) -> Packing:
    """Documents of these lengths in as few rows as best-fit decreasing finds; longer ones are cut at the capacity.

    Every piece, the longest first and equal ones in their order, goes into the row that it fills best, the oldest of
    equals. Each token is in one row; a document without tokens is in none.
    """
    count = -(-lengths // capacity)
    document = np.repeat(np.arange(len(lengths)), count)
    start = _ranges(count) * capacity
    length = np.minimum(capacity, lengths[document] - start)
    falling = np.argsort(-length, kind="stable")
    row = _best_fit(length[falling], capacity)
    pieces = falling[np.argsort(row, kind="stable")]
    first = np.concatenate([[0], np.cumsum(np.bincount(row))]) if len(row) else np.zeros(1, dtype=np.int64)
    return Packing(document[pieces], start[pieces], length[pieces], first, capacity)


def _best_fit(lengths: Index, capacity: int) -> Index:
    """The row of each piece, lengths falling. Pieces of one length are placed together.

    A row that was the best fit for a length still is after taking a piece, so it takes all it can hold. What it has
    left then is less than this length, and only counts again when the pieces have become shorter.
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    spare: defaultdict[int, list[int]] = defaultdict(list)  # free space → rows that have it
    ready: list[int] = []  # free spaces that the length at hand fits into, the smallest last
    opened, least, at = 0, capacity, 0
    values, counts = np.unique(-lengths, return_counts=True)
    for length, count in zip((-values).tolist(), counts.tolist(), strict=True):
        for space in range(least - 1, length - 1, -1):
            if spare.get(space):
                spare[space].sort(reverse=True)  # the oldest row last, where taking it is cheap
                ready.append(space)
        least, stop = length, at + count
        while at < stop:
            space = ready[-1] if ready else capacity
            each = space // length
            needed = -(-(stop - at) // each)
            if ready:
                taken = _take(spare[space], needed)
                if not spare[space]:
                    ready.pop()
            else:
                taken = list(range(opened, opened + needed))
                opened += needed
            used = min(stop - at, each * len(taken))
            rows[at : at + used] = np.repeat(taken, each)[:used]
            at += used
            last = used - each * (len(taken) - 1)  # what the last row has taken, fewer if there are no more
            left = space - last * length
            spare[space - each * length].extend(taken[:-1])
            spare[left].append(taken[-1])
            if left >= length:
                ready.append(left)
    return rows


def _take(rows: list[int], count: int) -> list[int]:
    """The last `count` rows, the last first, or all; they are gone from the list."""
    taken = rows[: -count - 1 : -1]
    del rows[-count:]
    return taken


def _ranges(counts: Index) -> Index:
    """0 … n-1 for each n of the counts, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


@dataclass(frozen=True)
class PackedRows:
    """Rows of `length` tokens, packed with documents; document d is ids[starts[d] : starts[d + 1]]."""

    ids: Tokens
    starts: Index
    length: int
    seed: int

    def __post_init__(self) -> None:
        if len(self) < 1:
            raise DataError("D002", f"{len(self.starts) - 1} documents without a token: nothing to pack")

    def __len__(self) -> int:
        """Rows in an epoch."""
        return len(self.packed)

    @cached_property
    def packed(self) -> Packing:
        return pack(np.diff(self.starts), self.length)

    def read(self, samples: Index) -> Rows:
        """The samples with these numbers, counted over all epochs; each epoch has the same rows in another order."""
        rows, packed = shuffle_samples(samples, len(self), self.seed), self.packed
        count = packed.row_starts[rows + 1] - packed.row_starts[rows]
        place = _ranges(count)
        piece = np.repeat(packed.row_starts[rows], count) + place
        length = packed.length[piece]
        document = packed.document[piece]
        before = np.cumsum(length) - length  # tokens of this batch before each piece
        row_begins = np.arange(len(rows)) * self.length - before[np.cumsum(count) - count]
        cell = before + np.repeat(row_begins, count)
        source = self.starts[document] + packed.start[piece]
        pieces = (source, length, self.starts[document + 1], cell, place + 1)
        return _fill_rows(self.ids, (len(rows), self.length), pieces)


@dataclass(frozen=True)
class PaddedRows:
    """A row for each document, cut at `length`; document d is ids[starts[d] : starts[d + 1]]."""

    ids: Tokens
    starts: Index
    length: int
    seed: int
    shuffle: bool = True
    """Whether an epoch has an order of its own; if not, sample g is row g modulo their number."""

    def __post_init__(self) -> None:
        if len(self) < 1:
            raise DataError("D002", "0 documents: nothing to read")

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def lengths(self) -> Index:
        """Tokens in each row."""
        return np.minimum(np.diff(self.starts), self.length)

    def read(self, samples: Index) -> Rows:
        """The samples with these numbers, padded on the right to the longest of them and a multiple of eight."""
        size = len(self)
        rows = shuffle_samples(samples, size, self.seed) if self.shuffle else samples % size
        length = self.lengths[rows]
        width = int(padded_width(length.max(initial=0)))
        cell = np.arange(len(rows)) * width
        pieces = (self.starts[rows], length, self.starts[rows + 1], cell, np.ones_like(rows))
        return _fill_rows(self.ids, (len(rows), width), pieces)


def padded_width(length: Index) -> Index:
    """The width of rows whose longest has this length: a multiple of eight, and never nothing."""
    return np.maximum(1, -(-length // PAD_MULTIPLE)) * PAD_MULTIPLE


def _fill_rows(ids: Tokens, shape: tuple[int, int], pieces: tuple[Index, Index, Index, Index, Index]) -> Rows:
    """Pieces given by their first token, length, the end of their document, first cell in the rows, and mark.

    A token predicts the one that follows in its document, in another piece if need be; a document's last, nothing.
    """
    source, length, end, cell, segment_id = pieces
    inputs, segment_ids = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    targets = np.full(shape, IGNORE, dtype=np.int64)
    within = _ranges(length)
    tokens, cells = np.repeat(source, length) + within, np.repeat(cell, length) + within
    inputs.reshape(-1)[cells] = ids[tokens]
    segment_ids.reshape(-1)[cells] = np.repeat(segment_id, length)
    inner = tokens + 1 < np.repeat(end, length)
    targets.reshape(-1)[cells[inner]] = ids[tokens[inner] + 1]
    return inputs, targets, segment_ids
