"""Standardisation by training statistics, and the file in a model's folder that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.images.preprocess import FILE as FILE
from headway.data.series.times import Clock, Numbers
from headway.errors import ConfigError
from headway.jsonfile import read_json

KEY = "series"
"""The table in the file."""


@dataclass(frozen=True)
class Scaling:
    """What a model of series knows of its data: columns, their means and scales, and the step of time."""

    columns: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    clock: Clock = field(default_factory=Clock)
    time: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    """What else a task has to know, as JSON."""

    @classmethod
    def measured(cls, columns: Sequence[str], values: Numbers, clock: Clock | None = None, time: str = "") -> Scaling:
        """By training values (T, C); a constant column keeps its scale."""
        known = np.isfinite(values)
        count = known.sum(0).clip(1)
        mean = np.where(known, values, 0.0).sum(0) / count
        scale = np.sqrt((np.where(known, values - mean, 0.0) ** 2).sum(0) / count)
        scale[scale < 1e-12 * np.maximum(1.0, abs(mean))] = 1.0
        return cls(tuple(columns), tuple(mean.tolist()), tuple(scale.tolist()), clock or Clock(), time)

    def apply(self, values: Numbers) -> Numbers:
        """Values (…, C) with mean 0 and variance 1 over the training data."""
        return np.asarray((values - np.array(self.mean)) / np.array(self.scale))

    def restore(self, values: Numbers) -> Numbers:
        """Standardised values (…, C) in their units."""
        return np.asarray(values * np.array(self.scale) + np.array(self.mean))

    def of(self, columns: Sequence[str], values: Numbers) -> Scaling:
        """The scaling of other columns: a column that training did not have is standardised by its own values."""
        own = Scaling.measured(columns, values)
        known = {name: (self.mean[i], self.scale[i]) for i, name in enumerate(self.columns)}
        pairs = [known.get(name, (own.mean[i], own.scale[i])) for i, name in enumerate(columns)]
        mean, scale = zip(*pairs, strict=True)
        return Scaling(tuple(columns), mean, scale, self.clock, self.time, self.about)

    def to_dict(self) -> dict[str, Any]:
        values = {"columns": list(self.columns), "mean": list(self.mean), "scale": list(self.scale)}
        return {KEY: {**values, "time": self.time, "clock": self.clock.to_dict(), "about": self.about}}


def read_scaling(path: Path) -> Scaling:
    """The scaling in a model's folder."""
    found: Any = read_json(path).get(KEY)
    try:
        clock = Clock(**found["clock"])
        mean, scale = (tuple(float(x) for x in found[name]) for name in ("mean", "scale"))
        columns = tuple(str(name) for name in found["columns"])
        if not len(columns) == len(mean) == len(scale):
            raise ValueError
        return Scaling(columns, mean, scale, clock, str(found["time"]), dict(found["about"]))
    except (TypeError, KeyError, ValueError):
        raise ConfigError("C004", f"{path}: no columns, means and scales of series (table {KEY!r})") from None


def filled(values: Numbers) -> Numbers:
    """Missing values (T, C) replaced by the last known one before, or by 0, the training mean, where there is none.

    Nothing that comes later is used.
    """
    known = np.isfinite(values)
    last = np.maximum.accumulate(np.where(known, np.arange(len(values))[:, None], -1), 0)
    found = np.take_along_axis(np.where(known, values, 0.0), last.clip(0), 0)
    return np.where(last < 0, 0.0, found)
