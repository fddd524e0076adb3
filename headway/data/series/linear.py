"""Simple forecasts to compare with: the last value, the last season, and a linear map of trend and season.

The linear map is that of DLinear (Zeng et al. 2023): a moving average is the trend, what is left is the season, each
has a linear map to the horizon, and all columns share them. It is fitted in closed form by ridge regression, whose
strength is chosen on the validation windows. Letters: B windows, L look-back, H horizon, C columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.series.windows import Windows

AVERAGED = 25
"""Steps of the moving average."""
STRENGTHS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
"""Ridge penalties to choose from, as shares of the mean square of the inputs."""
MOST_ROWS, AT_ONCE = 200_000, 512
"""Stretches of one column that are fitted, and windows that are read together."""
Floats = NDArray[np.floating[Any]]


def last_value(read: Floats, horizon: int) -> Floats:
    """(B, L, C) to (B, H, C): nothing changes."""
    return np.repeat(read[:, -1:], horizon, 1)


def last_season(read: Floats, horizon: int, season: int) -> Floats:
    """The last season again and again."""
    return read[:, read.shape[1] - season + np.arange(horizon) % season]


@dataclass(frozen=True)
class LinearForecast:
    """A linear map from the look-back to the horizon."""

    weights: NDArray[np.float64]
    """(L, H)"""
    bias: NDArray[np.float64]
    strength: float

    def __call__(self, read: Floats) -> Floats:
        found: Floats = (read.transpose(0, 2, 1) @ self.weights + self.bias).transpose(0, 2, 1)
        return found


def fit_linear(train: Windows, valid: Windows, look_back: int) -> LinearForecast:
    """Fit the map on training windows."""
    gram, product = _sums(train, look_back)
    parts = _decomposition(look_back)  # 2·L + 1, L + 1
    inside, target = parts @ gram @ parts.T, parts @ product
    size = np.trace(inside[:-1, :-1]) / (2 * look_back)
    penalty = np.ones(len(inside))
    penalty[-1] = 0.0  # of the bias
    some, best = valid if len(valid) else train, None
    checked = some.every(1 + len(some) // 1000)
    for strength in STRENGTHS:
        solved = parts.T @ np.linalg.solve(inside + np.diag(strength * size * penalty + 1e-9), target)
        found = LinearForecast(solved[:-1], solved[-1], strength)
        error = _error(found, checked, look_back)
        if best is None or error < best[0]:
            best = (error, found)
    assert best is not None
    return best[1]


def _decomposition(length: int) -> NDArray[np.float64]:
    """The matrix that makes trend, season and a constant 1 of a look-back with a constant 1; ends are repeated."""
    half, average = AVERAGED // 2, np.zeros((length, length))
    for step in range(-half, AVERAGED - half):
        average[np.arange(length), (np.arange(length) + step).clip(0, length - 1)] += 1 / AVERAGED
    found = np.zeros((2 * length + 1, length + 1))
    found[:length, :length], found[length:-1, :length], found[-1, -1] = average, np.eye(length) - average, 1
    return found


def _batches(windows: Windows) -> Iterator[tuple[Floats, NDArray[np.bool_] | None]]:
    for at in range(0, len(windows), AT_ONCE):
        yield windows.read(slice(at, at + AT_ONCE))


def _sums(train: Windows, look_back: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums of products of inputs, and of inputs and targets; a stretch with a missing target is left out."""
    count = train.values.shape[1] * len(train)
    gram = np.zeros((look_back + 1, look_back + 1))
    product = np.zeros((look_back + 1, train.length - look_back))
    for values, known in _batches(train.every(1 + count // MOST_ROWS)):
        rows = values.transpose(0, 2, 1).reshape(-1, values.shape[1])
        if known is not None:
            rows = rows[known[:, look_back:].all(1).reshape(-1)]
        x = np.concatenate([rows[:, :look_back], np.ones((len(rows), 1), rows.dtype)], 1).astype(np.float64)
        gram += x.T @ x
        product += x.T @ rows[:, look_back:].astype(np.float64)
    return gram, product


def _error(found: LinearForecast, some: Windows, look_back: int) -> float:
    total = count = 0.0
    for values, known in _batches(some):
        right = np.ones_like(values, dtype=bool) if known is None else known
        error = np.where(right[:, look_back:], found(values[:, :look_back]) - values[:, look_back:], 0.0)
        total, count = total + float((error**2).sum()), count + int(right[:, look_back:].sum())
    return total / max(1.0, count)
