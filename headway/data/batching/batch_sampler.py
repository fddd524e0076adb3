"""Batch samplers: the samples of a step, a pure function of its number for any number of processes."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headway.data.batching.packing import padded_width
from headway.data.batching.permutation import Index, epoch_key, permute
from headway.errors import DataError


class BatchSampler(Protocol):
    """Sample numbers run over all epochs: epoch · size + index."""

    @property
    def steps_per_epoch(self) -> float: ...

    def samples(self, step: int) -> Index:
        """Return the whole batch of a step; `shard` splits it between processes."""
        ...


@dataclass(frozen=True)
class FixedBatchSampler:
    """`batch_size` samples per step, `size` samples per epoch."""

    size: int
    batch_size: int

    @property
    def steps_per_epoch(self) -> float:
        return self.size / self.batch_size

    def samples(self, step: int) -> Index:
        return np.arange(step * self.batch_size, (step + 1) * self.batch_size)


@dataclass(frozen=True)
class _Epoch:
    order: Index
    """Every sample once, in batches one after the other."""
    batch_starts: Index
    """The start of each batch in `order`, and at the end the number of samples."""
    key: int
    """Key of the permutation of the batches."""

    def __len__(self) -> int:
        return len(self.batch_starts) - 1

    def batch(self, number: int) -> Index:
        place = int(permute(np.array([number]), len(self), self.key)[0])
        return self.order[self.batch_starts[place] : self.batch_starts[place + 1]]


class TokenBatchSampler:
    """Batches with about the same number of tokens, padding included, of samples of similar length.

    An epoch is shuffled, sorted by length within pools of some batches, cut into batches of at most `tokens` tokens
    (rows times width), and the batches are shuffled. A sample wider than `tokens` is a batch by itself. Index i means
    row i of the source: the source must not shuffle again.
    """

    def __init__(self, lengths: Index, tokens: int, seed: int, pool: int = 64) -> None:
        """`pool` is a number of batches: larger pools need less padding and mix lengths less."""
        if len(lengths) < 1:
            raise DataError("D002", "0 samples: no batch can be made")
        self.widths, self.tokens, self.seed = padded_width(lengths), tokens, seed
        self.pool = pool * max(1, int(tokens / self.widths.mean()))
        self._lock = threading.Lock()  # the threads of a prefetcher share a sampler
        self._epochs: dict[int, _Epoch] = {}
        self._first = [0, len(self._epoch(0))]  # the first step of each epoch reached so far, and of the next

    @property
    def steps_per_epoch(self) -> float:
        """Batches of the first epoch; other epochs have a few more or less."""
        return float(self._first[1])

    def samples(self, step: int) -> Index:
        with self._lock:
            while self._first[-1] <= step:
                self._first.append(self._first[-1] + len(self._epoch(len(self._first) - 1)))
            number = bisect_right(self._first, step) - 1
            epoch = self._epoch(number)
        return number * len(self.widths) + epoch.batch(step - self._first[number])

    def _epoch(self, number: int) -> _Epoch:
        """Return an epoch. The last two are kept: while one ends, prefetching threads are in the next."""
        if number not in self._epochs:
            self._epochs[number] = self._build_epoch(epoch_key(self.seed, number))
            if len(self._epochs) > 2:
                del self._epochs[next(iter(self._epochs))]
        return self._epochs[number]

    def _build_epoch(self, key: int) -> _Epoch:
        size = len(self.widths)
        order = permute(np.arange(size), size, key)
        order = order[np.lexsort((-self.widths[order], np.arange(size) // self.pool))]
        rows = np.maximum(1, self.tokens // self.widths[order])  # of a batch that starts here: its widest row is first
        batch_starts = [0]
        while (at := batch_starts[-1]) < size:
            pool_end = (at // self.pool + 1) * self.pool
            batch_starts.append(min(at + int(rows[at]), pool_end, size))
        return _Epoch(order, np.array(batch_starts), epoch_key(key, 0))


def shard(samples: Index, parts: int) -> list[Index]:
    """Split a batch evenly between processes or accumulation steps; concatenated, the parts are the batch."""
    return np.array_split(samples, parts)
