"""Documents as rows of a batch: several per row, packed, or one per row, padded.

Both yield (inputs, targets, segment_ids); segment ids are 1, 2, … for the pieces of a row and 0 for padding.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.batching.windows import Ids, Tokens
from headway.errors import DataError, counted

IGNORE = -100
"""Target of positions that do not count in the loss; the losses use the same number."""
PAD_MULTIPLE = 8
"""Padded widths are multiples of this, because GPUs multiply such matrices faster."""

Rows = tuple[Ids, Ids, Ids]
"""Inputs, targets, segment ids (n, width)."""


@dataclass(frozen=True)
class Packing:
    """Pieces of documents, row by row; piece p is tokens start[p] … start[p] + length[p] - 1 of document[p]."""

    document: Index
    start: Index
    length: Index
    row_starts: Index
    """The first piece of each row, and at the end the number of pieces."""
    capacity: int

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    def row(self, number: int) -> list[tuple[int, int, int]]:
        """Return (document, start, length) of each piece of a row, from left to right."""
        here = slice(int(self.row_starts[number]), int(self.row_starts[number + 1]))
        pieces = (self.document[here], self.start[here], self.length[here])
        return list(zip(*(part.tolist() for part in pieces), strict=True))

    @property
    def fill(self) -> float:
        """Share of positions that are not padding."""
        return float(self.length.sum()) / max(1, len(self) * self.capacity)


def pack(lengths: Index, capacity: int) -> Packing:
    """Pack documents of these lengths into rows by best-fit decreasing; documents longer than the capacity are split.

    Pieces are placed by falling length, in their order if equal, each into the row with the least free space that it
    fits, the oldest if equal. Each token is in one row; a document without tokens is in none.
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
    """Return the row of each piece; lengths are falling. Pieces of equal length are placed together.

    The best-fitting row for a length stays the best after it takes a piece, so it takes as many as it can hold. Its
    free space is then less than this length, and matters again only for shorter pieces.
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    spare: defaultdict[int, list[int]] = defaultdict(list)  # free space → rows with it
    ready: list[int] = []  # free spaces that fit the current length, the smallest last
    opened, least, at = 0, capacity, 0
    values, counts = np.unique(-lengths, return_counts=True)
    for length, count in zip((-values).tolist(), counts.tolist(), strict=True):
        for space in range(least - 1, length - 1, -1):
            if spare.get(space):
                spare[space].sort(reverse=True)  # the oldest row last, where removing it is cheap
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
            last = used - each * (len(taken) - 1)  # pieces of the last row, which may take fewer
            left = space - last * length
            spare[space - each * length].extend(taken[:-1])
            spare[left].append(taken[-1])
            if left >= length:
                ready.append(left)
    return rows


def _take(rows: list[int], count: int) -> list[int]:
    """Remove the last `count` rows from the list, or all, and return them, the last first."""
    taken = rows[: -count - 1 : -1]
    del rows[-count:]
    return taken


def _ranges(counts: Index) -> Index:
    """Concatenate 0 … n-1 for each n of the counts."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


@dataclass(frozen=True)
class PackedRows:
    """Rows of `length` tokens packed with documents; document d is ids[starts[d] : starts[d + 1]]."""

    ids: Tokens
    starts: Index
    length: int
    seed: int

    def __post_init__(self) -> None:
        if len(self) < 1:
            raise DataError(
                "D002", f"{counted(len(self.starts) - 1, 'documents')} without a token, so there is nothing to pack"
            )

    def __len__(self) -> int:
        """Rows per epoch."""
        return len(self.packed)

    @cached_property
    def packed(self) -> Packing:
        return pack(np.diff(self.starts), self.length)

    def read(self, samples: Index) -> Rows:
        """Return the rows of these samples, numbered over all epochs; each epoch permutes the same rows."""
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
    """One row per document, truncated to `length`; document d is ids[starts[d] : starts[d + 1]]."""

    ids: Tokens
    starts: Index
    length: int
    seed: int
    shuffle: bool = True
    """Whether each epoch has its own permutation; if not, sample g is row g modulo the number of rows."""

    def __post_init__(self) -> None:
        if len(self) < 1:
            raise DataError("D002", "0 documents: nothing to read")

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def lengths(self) -> Index:
        """Tokens of each row."""
        return np.minimum(np.diff(self.starts), self.length)

    def read(self, samples: Index) -> Rows:
        """Return the rows of these samples, padded on the right to a multiple of PAD_MULTIPLE."""
        size = len(self)
        rows = shuffle_samples(samples, size, self.seed) if self.shuffle else samples % size
        length = self.lengths[rows]
        width = int(padded_width(length.max(initial=0)))
        cell = np.arange(len(rows)) * width
        pieces = (self.starts[rows], length, self.starts[rows + 1], cell, np.ones_like(rows))
        return _fill_rows(self.ids, (len(rows), width), pieces)


def padded_width(length: Index) -> Index:
    """Round a length up to a multiple of PAD_MULTIPLE, at least one of it."""
    return np.maximum(1, -(-length // PAD_MULTIPLE)) * PAD_MULTIPLE


def _fill_rows(ids: Tokens, shape: tuple[int, int], pieces: tuple[Index, Index, Index, Index, Index]) -> Rows:
    """Fill rows with pieces, given by first token, length, end of the document, first cell, and segment id.

    The target of a token is the next token of its document, even in another piece; the last token has no target.
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
