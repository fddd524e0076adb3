"""Figures with the intervals that belong to them, and what else an evaluation has to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headway.data.order import Index

DRAWS = 1000
"""Resamples behind an interval."""

Interval = tuple[float, float, float]
"""A figure and the bounds that hold 95 % of its resamples."""


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on some data."""

    examples: int
    figures: dict[str, Interval]
    """The first is the one to compare by."""
    details: dict[str, Any] = field(default_factory=dict)
    """Plain values for JSON and for the report: a confusion matrix, calibration, slices by length, worst examples."""
    each: list[Any] = field(default_factory=list)
    """What was predicted, example by example in the order of the file, for those who want to look, or to compare."""

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "each"}


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
