"""Figures with the intervals that belong to them, and what else an evaluation has to show.

Letters: N examples, K statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index

DRAWS = 1000
"""Resamples behind an interval."""

Interval = tuple[float, float, float]
"""A figure and the bounds that hold 95 % of its resamples."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A figure of some examples: a function of their statistics, summed."""

    name: str
    statistics: Numbers
    """(N, K)"""
    score: Callable[[Numbers], float]
    signature: str = ""

    @cached_property
    def value(self) -> float:
        return self.score(self.statistics.sum(0))

    def some(self, rows: NDArray[np.int64]) -> float:
        return self.score(self.statistics[rows].sum(0))

    def interval(self, seed: int = 0, draws: int = DRAWS) -> Interval:
        """With its bootstrap interval (Koehn 2004)."""
        found = [self.score(total) for total in resampled(self.statistics, seed, draws)]
        low, high = np.quantile(found, [0.025, 0.975])
        return self.value, float(low), float(high)


def mean_metric(name: str, values: Numbers, weights: Numbers | None = None) -> Metric:
    """A mean over examples, or over the `weights` things that each of them has, of which `values` are sums."""
    many = np.ones(len(values)) if weights is None else weights
    return Metric(name, np.stack([values, many], 1).astype(np.float64), lambda total: float(total[0] / total[1]))


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on some data."""

    examples: int
    metrics: dict[str, Interval]
    """The first is the one to compare by."""
    details: dict[str, Any] = field(default_factory=dict)
    """Plain values for JSON and for the report: a confusion matrix, calibration, slices by length, worst examples."""
    each: list[Any] = field(default_factory=list)
    """What was predicted, example by example in the order of the file, for those who want to look, or to compare."""
    primary_metric: Metric | None = None
    """The first figure with the statistics of each example, where it is no mean over examples."""

    def as_dict(self) -> dict[str, Any]:
        return {"examples": self.examples, "figures": self.metrics, "details": self.details}


def interval(statistic: Callable[[Index], float], examples: int, seed: int = 0, draws: int = DRAWS) -> Interval:
    """A statistic of the examples with these numbers, and its bootstrap interval (Efron 1979)."""
    value = statistic(np.arange(examples))
    generator = np.random.default_rng(seed)
    found = [statistic(generator.integers(0, examples, examples)) for _ in range(draws)]
    low, high = np.nanquantile(found, [0.025, 0.975])
    return float(value), float(low), float(high)


def mean_interval(values: np.ndarray[Any, Any], seed: int = 0, draws: int = DRAWS) -> Interval:
    """Of a mean over examples, all draws at once."""
    rows = np.random.default_rng(seed).integers(0, len(values), (draws, len(values)))
    low, high = np.quantile(values[rows].mean(1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def resampled(statistics: Numbers, seed: int = 0, draws: int = DRAWS) -> Numbers:
    """(draws, K): statistics of as many examples drawn with replacement, summed; the same ones for the same seed."""
    count = len(statistics)
    times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), draws)
    return np.asarray(times @ statistics, dtype=np.float64)


def paired_gain(ours: Metric, theirs: Metric, seed: int = 0, draws: int = DRAWS) -> Interval:
    """By how much the first figure is above the second, examples resampled in pairs (Koehn 2004)."""
    both = (resampled(m.statistics, seed, draws) for m in (ours, theirs))
    found = [ours.score(a) - theirs.score(b) for a, b in zip(*both, strict=True)]
    low, high = np.quantile(found, [0.025, 0.975])
    return ours.value - theirs.value, float(low), float(high)
