"""Shuffling by a keyed permutation: the order of samples is a pure function of the seed.

Sample g of a run is a pure function of (seed, g), without a shuffled list or a generator's state. A run can resume at
any step at once, and the order is the same for any number of processes or workers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

ROUNDS = 6


def epoch_key(seed: int, epoch: int) -> int:
    """The key of an epoch's permutation."""
    return int(splitmix64(np.uint64(((seed << 20) + epoch) & (2**64 - 1))))


def by_epoch(samples: Index, size: int, seed: int) -> Iterator[tuple[NDArray[np.bool_], Index, int]]:
    """For each epoch of these samples, yield a mask of its samples, their permuted indices, and its key."""
    epoch, index = np.divmod(samples, size)
    for number in np.unique(epoch):
        here = epoch == number
        key = epoch_key(seed, int(number))
        yield here, permute(index[here], size, key), key


def shuffle_samples(samples: Index, size: int, seed: int) -> Index:
    """Return the row 0 … size-1 of each sample, numbered over all epochs; every epoch has its own permutation."""
    rows = np.empty_like(samples)
    for here, index, _ in by_epoch(samples, size, seed):
        rows[here] = index
    return rows


def permute(index: Index, size: int, key: int) -> Index:
    """Apply the permutation of 0 … size-1 with this key to each index."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = [splitmix64(np.uint64((key * ROUNDS + i) & (2**64 - 1))) for i in range(ROUNDS)]
    out = np.asarray(index, dtype=np.int64)
    if out.size and (out.min() < 0 or out.max() >= size):
        raise IndexError(f"index outside 0 … {size - 1}")
    result = _feistel(out.astype(np.uint64), half, keys)
    while (far := result >= size).any():  # the network permutes 4^half numbers: repeat until inside
        result[far] = _feistel(result[far], half, keys)
    return result.astype(np.int64)


def _feistel(x: NDArray[np.uint64], half: int, keys: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """A Feistel network: a permutation of 0 … 2^(2·half)-1 for any mixing function."""
    low = np.uint64((1 << half) - 1)
    left, right = x >> np.uint64(half), x & low
    for key in keys:
        left, right = right, left ^ (splitmix64(right ^ key) & low)
    return (left << np.uint64(half)) | right


def splitmix64(x: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Every bit of the result depends on every bit of x (the finaliser of SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = (np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(2**64 - 1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
