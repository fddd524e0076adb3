"""Statistics of text lengths in characters, bytes, words and tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.data.profile.folding import Counts

MANY = 1 << 16
"""Lengths below it are counted together."""
BINS = 16
"""Bars of a histogram."""


def quantile_99(lengths: Sequence[int] | NDArray[np.int64]) -> int:
    """The smallest of these lengths that 99 % of them do not exceed."""
    return int(np.quantile(np.asarray(lengths), 0.99, method="inverted_cdf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of all texts in one unit. A quantile is the least length that its share of the texts does not exceed."""

    total: int
    min: int
    median: int
    mean: float
    p95: int
    max: int
    histogram: tuple[int, ...]
    """Number of texts per bin; BINS bins of equal ratio from the shortest to the longest text."""

    def bars(self) -> str:
        """The histogram on one line; only empty bins are blank."""
        most = max(self.histogram)
        return "".join(" ▁▂▃▄▅▆▇█"[-(-8 * number // most)] for number in self.histogram)


class LengthCounter:
    """Counts of each length: small, and quantiles are exact."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[int]] = {}

    def add(self, **lengths: Sequence[int] | Counts) -> None:
        """Add the lengths of some texts, by unit."""
        for unit, some in lengths.items():
            values = np.asarray(some, dtype=np.int64)
            short = np.bincount(values[values < MANY])
            known = self.counts.setdefault(unit, Counter())
            for value in np.flatnonzero(short).tolist():
                known[value] += int(short[value])
            known.update(values[values >= MANY].tolist())

    def lengths(self) -> dict[str, Lengths]:
        return {unit: length_statistics(counts) for unit, counts in self.counts.items()}


def length_statistics(counts: Counter[int]) -> Lengths:
    """Statistics from the counts of each length."""
    lengths = np.array(sorted(counts))
    numbers = np.array([counts[length] for length in lengths.tolist()])
    upto, total = numbers.cumsum(), int((lengths * numbers).sum())
    texts, least, most = int(upto[-1]), int(lengths[0]), int(lengths[-1])
    edges = np.geomspace(max(least, 1), max(most, 1), BINS + 1)[1:-1]
    bars = np.bincount(np.searchsorted(edges, lengths, side="right"), weights=numbers, minlength=BINS)
    return Lengths(
        total=total,
        min=least,
        median=int(lengths[np.searchsorted(upto, -(-texts // 2))]),
        mean=total / texts,
        p95=int(lengths[np.searchsorted(upto, -(-95 * texts // 100))]),
        max=most,
        histogram=tuple(int(bar) for bar in bars),
    )
