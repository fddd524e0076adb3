"""Stripes of a text for recurrent networks that keep their state: each row of a batch goes on where it ended before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headway.data.batching.permutation import Index, splitmix64
from headway.data.batching.windows import Ids, Tokens
from headway.errors import DataError, counted
from headway.progress import track

LEAST_PIECES = 8
"""Sequences in a row of an evaluation, at least: shorter texts have fewer rows."""


@dataclass(frozen=True)
class Stripes:
    """Row r of step t is the t-th piece of `length` tokens of stripe r, with its targets.

    The text is a ring of `rows` stripes that begins at a place that the seed chooses. A row that reaches the end of its
    stripe goes on in the next one, so that its state is always of the tokens before, in every epoch.
    """

    ids: Tokens
    length: int
    rows: int
    seed: int

    def __post_init__(self) -> None:
        if len(self) < 1:
            what = f"{counted(len(self.ids), 'tokens')} are too few"
            why = f"{self.rows} rows (train.batch) of {self.length} tokens (data.length) need {self.rows * self.length}"
            raise DataError("D002", f"{what}: {why}", "give more text, or a smaller train.batch or data.length")

    def __len__(self) -> int:
        """Samples per epoch: one for each row of each step."""
        return len(self.ids) // (self.rows * self.length) * self.rows

    def read(self, samples: Index) -> tuple[Ids, Ids, None]:
        """Return inputs and targets (n, length) of these samples, numbered over all epochs; no segment ids."""
        size = len(self.ids)
        step, row = np.divmod(samples, self.rows)
        first = int(splitmix64(np.uint64(self.seed)) % np.uint64(size))
        starts = first + row * (size // self.rows) + step * self.length
        found = self.ids[(starts[:, None] + np.arange(self.length + 1)) % size]
        return found[:, :-1].astype(np.int64), found[:, 1:].astype(np.int64), None  # copies, not two views


def evaluation_stripes(ids: Tokens, length: int, rows: int, ignore: int) -> Iterator[tuple[Ids, Ids, Ids | None]]:
    """Inputs, targets and attention mask of one piece of all stripes after the other, for a state that is carried.

    Every token but the first is predicted exactly once. All rows but the first start with a piece of the row before, as
    context only.
    """
    count = len(ids) - 1
    if count < 1:
        raise DataError("D002", f"{counted(len(ids), 'tokens')} to evaluate on: too few to predict any")
    rows = max(1, min(rows, count // (LEAST_PIECES * length)))
    stripe = -(-count // rows)
    starts, along = np.arange(rows)[:, None] * stripe, np.arange(length)
    if rows > 1:
        before = starts - length + along
        mask = (before >= 0).astype(np.int64)
        yield ids[np.maximum(before, 0)].astype(np.int64), np.full(before.shape, ignore, dtype=np.int64), mask
    for at in track(range(0, stripe, length), "evaluating", unit="batches"):
        places = starts + at + along
        real = (at + along < stripe) & (places < count)
        targets = np.where(real, ids[np.minimum(places + 1, count)].astype(np.int64), ignore)
        yield ids[np.minimum(places, count)].astype(np.int64), targets, None
