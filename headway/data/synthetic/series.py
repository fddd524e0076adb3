"""Synthetic series: hourly numbers with a trend, a season of a day and one of a week, and noise."""

from __future__ import annotations

import numpy as np

from headway.data.series.table import Table
from headway.data.series.times import SECOND, Clock, Numbers

START = 1_704_067_200 * SECOND
"""1 January 2024, a Monday."""
HOUR = 3600 * SECOND
NAMES = ("load", "temperature", "price", "visits")
NOISE, MEMORY = 0.25, 0.8
"""Deviation of the noise, and how much of it lasts from one hour to the next."""


def make_table(rows: int = 24 * 7 * 20, seed: int = 0) -> Table:
    """A table of some hours."""
    dice, hours = np.random.default_rng(seed), np.arange(rows)
    columns = [_column(hours, dice) for _ in NAMES]
    clock = Clock("date", float(HOUR))
    return Table(NAMES, np.stack(columns, 1), np.asarray(START + hours * float(HOUR), np.float64), clock, "time")


def _column(hours: np.ndarray[tuple[int], np.dtype[np.int64]], dice: np.random.Generator) -> Numbers:
    """Each column has its own level, trend, shapes of day and week, and noise."""
    level, slope, day, week = dice.uniform(20, 100), dice.uniform(-1, 2), dice.uniform(1, 2), dice.uniform(0.5, 1)
    found = slope * hours / len(hours) + (hours // 24 % 7 >= 5) * week * dice.choice([-1.0, 1.0])
    for times in (1, 2, 3):
        found = found + day / times**1.5 * np.sin(2 * np.pi * (times * hours / 24 + dice.uniform()))
    noise = np.zeros(len(hours))
    shocks = dice.normal(0, NOISE, len(hours))
    for at in range(1, len(hours)):
        noise[at] = MEMORY * noise[at - 1] + shocks[at]
    return np.asarray(level + 5 * (found + noise))
