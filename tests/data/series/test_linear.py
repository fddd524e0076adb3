"""Simple forecasts: the closed form is that of explicit windows, and it learns what is linear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headway.data.series.linear import AVERAGED, fit_linear, last_season, last_value
from headway.data.series.windows import make_windows


def decomposed(rows: np.ndarray) -> np.ndarray:
    """Trend and season of each row as DLinear computes them: a moving average with repeated ends."""
    half = AVERAGED // 2
    wide = np.concatenate([rows[:, :1].repeat(half, 1), rows, rows[:, -1:].repeat(half, 1)], 1)
    trend = np.stack([wide[:, at : at + AVERAGED].mean(1) for at in range(rows.shape[1])], 1)
    return np.concatenate([trend, rows - trend, np.ones((len(rows), 1))], 1)


def test_the_closed_form_is_ridge_on_trend_and_season() -> None:
    dice = np.random.default_rng(0)
    values = np.sin(np.arange(300)[:, None] / 5 + [0, 1]) + 0.1 * dice.normal(size=(300, 2))
    train, valid = make_windows([(values, 0, 220)], 30, 4), make_windows([(values, 220, 300)], 30, 4)
    found = fit_linear(train, valid, 30)
    rows = train.read()[0].transpose(0, 2, 1).reshape(-1, 34).astype(np.float64)
    x, y = decomposed(rows[:, :30]), rows[:, 30:]
    size = (x[:, :-1] ** 2).sum() / 60
    penalty = np.diag([found.strength * size] * 60 + [0.0]) + 1e-9 * np.eye(61)
    weights = np.linalg.solve(x.T @ x + penalty, x.T @ y)
    read = valid.read()[0][:, :30]
    slow = decomposed(read.transpose(0, 2, 1).reshape(-1, 30)) @ weights
    assert np.allclose(found(read), slow.reshape(len(read), 2, 4).transpose(0, 2, 1), atol=1e-5)


def test_a_straight_line_goes_on() -> None:
    values = np.linspace(0, 3, 200)[:, None]
    train = make_windows([(values, 0, 150)], 20, 5)
    found = fit_linear(train, make_windows([(values, 150, 200)], 20, 5), 20)
    read = values[None, 160:180]
    assert np.allclose(found(read)[0], values[180:185], atol=1e-3) and not np.allclose(last_value(read, 5), values[185])


def test_stretches_with_missing_targets_are_left_out() -> None:
    """The same map as from the other windows alone."""
    values = np.sin(np.arange(200.0) ** 1.3)[:, None]
    values[50:60] = np.nan
    train, valid = make_windows([(values, 0, 150)], 20, 5), make_windows([(values, 150, 200)], 20, 5)
    known = train.read()[1]
    assert known is not None
    whole = replace(train, known=None, starts=train.starts[known[:, 20:].all((1, 2))])
    assert 0 < len(whole) < len(train)
    found, right, wrong = (fit_linear(each, valid, 20) for each in (train, whole, replace(train, known=None)))
    assert np.allclose(found.weights, right.weights) and not np.allclose(wrong.weights, right.weights, atol=1e-3)


def test_the_last_value_and_the_last_season() -> None:
    read = np.arange(6.0)[None, :, None]
    assert last_value(read, 3)[0, :, 0].tolist() == [5, 5, 5]
    assert last_season(read, 5, 3)[0, :, 0].tolist() == [3, 4, 5, 3, 4]
