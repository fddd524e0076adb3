"""Rolling evaluation of forecasts: every window of a part, at every step, beside simple forecasts.

Errors are of standardised values, as in the literature. Letters: N windows, L look-back, H horizon, C columns, Q
quantiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.series.linear import LinearForecast, last_season, last_value
from headway.data.series.windows import Windows
from headway.joint.series import SeriesModel
from headway.tasks.batch import ProcessGroup
from headway.tasks.classification.predict import gather_logits
from headway.tasks.metrics.bootstrap import Evaluation, Metric
from headway.tasks.metrics.classification import Numbers

SEQUENCES = 2048
"""Sequences that are computed together."""
PARTS = 8
"""Stretches of the horizon in the table of errors."""
SHOWN, COLUMNS = 3, 2
"""Forecasts that a report shows, and columns of each."""
Values = NDArray[np.floating[Any]]
Rule = Callable[[Values], Values]
"""A simple forecast: (B, L, C) to (B, H, C)."""


@dataclass(frozen=True)
class Errors:
    """Errors of windows, as sums over columns."""

    squared: Numbers
    """(N, H)"""
    absolute: Numbers
    count: Numbers
    """(N, H): known values."""
    pinball: Numbers | None = None
    """(N,): summed over the horizon, mean over quantiles."""
    inside: Numbers | None = None
    """(N,): values between the lowest and the highest quantile."""

    @classmethod
    def of(cls, sums: Numbers, horizon: int) -> Errors:
        """From the rows that `window_sums` makes."""
        more = sums[:, 3 * horizon :]
        some = (more[:, 0], more[:, 1]) if more.shape[1] else (None, None)
        return cls(*np.split(sums[:, : 3 * horizon], 3, 1), *some)

    def metric(self, name: str, sums: Numbers) -> Metric:
        """A mean over values. Windows overlap, so its interval is by stretches as long as the horizon."""
        count, size = self.count.sum(1), self.count.shape[1]
        starts = np.arange(0, len(count), size)
        both = np.stack([np.add.reduceat(each, starts) for each in (sums, count)], 1)
        return Metric(name, both, lambda total: float(total[0] / max(1.0, total[1])))

    def metrics(self) -> dict[str, Metric]:
        found = {"mse": self.squared.sum(1), "mae": self.absolute.sum(1)}
        if self.pinball is not None and self.inside is not None:
            found |= {"pinball": self.pinball, "coverage": self.inside}
        return {name: self.metric(name, sums) for name, sums in found.items()}

    def by_step(self, sums: Numbers) -> Numbers:
        """(H,): the mean error at each step of the horizon."""
        return np.asarray(sums.sum(0) / self.count.sum(0).clip(1))


def window_sums(predicted: Tensor, target: Tensor, known: Tensor | None, quantiles: Sequence[float]) -> Tensor:
    """Sums for `Errors` (B, 3·H + 2) of predictions (B, H, C, Q) and true values (B, H, C)."""
    right = torch.ones_like(target) if known is None else known.to(target.dtype)
    point = predicted[..., quantiles.index(0.5) if quantiles else 0]
    error = (point - target) * right
    sums = [error.square().sum(2), error.abs().sum(2), right.sum(2)]
    if quantiles:
        between = (predicted[..., 0] <= target) & (target <= predicted[..., -1])
        sums += [(pinball(predicted, target, quantiles) * right).sum((1, 2))[:, None]]
        sums += [(between * right).sum((1, 2))[:, None]]
    return torch.cat(sums, 1)


def pinball(predicted: Tensor, target: Tensor, quantiles: Sequence[float]) -> Tensor:
    """(B, H, C): the pinball loss, mean over quantiles."""
    losses = [
        torch.maximum(share * (target - predicted[..., i]), (share - 1) * (target - predicted[..., i]))
        for i, share in enumerate(quantiles)
    ]
    return torch.stack(losses).mean(0)


def _batches(part: Windows) -> list[Index]:
    size = max(1, SEQUENCES // part.values.shape[1])
    return [np.arange(at, min(at + size, len(part))) for at in range(0, len(part), size)]


def model_errors(model: SeriesModel, part: Windows, world: ProcessGroup | None = None) -> Errors:
    """Of a model; each process computes some windows and knows all."""
    config, device = model.config, next(model.parameters()).device

    def sums_of(rows: Index) -> Tensor:
        values, known = part.read(rows)
        windows = torch.from_numpy(values).to(device)
        right = None if known is None else torch.from_numpy(known[:, config.look_back :]).to(device)
        read = windows[:, : config.look_back].to(next(model.parameters()).dtype)
        return window_sums(model.forecast(read), windows[:, config.look_back :], right, config.quantiles)

    wide = 3 * config.horizon + (2 if config.quantiles else 0)
    return Errors.of(gather_logits(model, _batches(part), wide, sums_of, world), config.horizon)


def rule_errors(rule: Rule, part: Windows, look_back: int) -> Errors:
    """Of a simple forecast."""
    found = []
    for rows in _batches(part):
        values, known = part.read(rows)
        guess = torch.from_numpy(np.ascontiguousarray(rule(values[:, :look_back]))).double()
        right = None if known is None else torch.from_numpy(known[:, look_back:])
        found.append(window_sums(guess[..., None], torch.from_numpy(values[:, look_back:]).double(), right, ()))
    return Errors.of(torch.cat(found).numpy(), part.length - look_back)


def naive(horizon: int) -> Rule:
    """The last value."""
    return lambda read: last_value(read, horizon)


def simple_forecasts(look_back: int, horizon: int, season: int, linear: LinearForecast | None) -> dict[str, Rule]:
    """The forecasts that a model stands beside, by what they are called."""
    found: dict[str, Rule] = {"last value": naive(horizon)}
    if 1 < season <= look_back:
        found[f"last season ({season} steps)"] = lambda read: last_season(read, horizon, season)
    if linear is not None:
        found["linear (trend and season, ridge)"] = linear
    return found


def evaluation(model: SeriesModel, part: Windows, columns: Sequence[str], rules: dict[str, Rule]) -> Evaluation:
    """In full: metrics with intervals, the simple forecasts beside them, errors by step, and some forecasts."""
    config = model.config
    errors = model_errors(model, part)
    metrics = errors.metrics()
    each = {"this model": errors, **{name: rule_errors(rule, part, config.look_back) for name, rule in rules.items()}}
    rows = [
        {"kind": name, "examples": len(part), **{key: metric.value for key, metric in found.metrics().items()}}
        for name, found in each.items()
    ]
    ends = sorted({round(config.horizon * (i + 1) / PARTS) for i in range(PARTS)} - {0})
    squared, absolute = (errors.by_step(sums) for sums in (errors.squared, errors.absolute))
    by_step = [
        {"from": first + 1, "to": end, "examples": len(part), "mse": squared[first:end].mean(),
         "mae": absolute[first:end].mean()}
        for first, end in zip([0, *ends], ends, strict=False)
    ]  # fmt: skip
    details: dict[str, Any] = {
        "by_model": rows,
        "slices": [{key: float(value) if key[0] == "m" else value for key, value in row.items()} for row in by_step],
        "slices_title": "by step of the horizon",
        "unit": "steps",
        "charts": [_by_step_chart(each), *_shown(model, part, columns)],
    }
    return Evaluation(
        len(part), {name: metric.interval() for name, metric in metrics.items()}, details, primary_metric=metrics["mse"]
    )


def _by_step_chart(each: dict[str, Errors]) -> dict[str, Any]:
    """Squared error against the step of the horizon."""
    lines = [{"name": name, "y": found.by_step(found.squared).tolist()} for name, found in each.items()]
    return {"title": "squared error by step of the horizon", "x_name": "steps ahead", "first": 1, "lines": lines}


def _shown(model: SeriesModel, part: Windows, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Some held-out forecasts, standardised, each after a look-back as long as the horizon at most."""
    from headway.tasks.series.predict import predicted

    config, found = model.config, []
    for row in sorted({*np.linspace(0, len(part) - 1, SHOWN).astype(int).tolist()}):
        values, known = part.read(np.array([row]))
        guess = predicted(model, torch.from_numpy(values[:, : config.look_back]), config.horizon)[0].numpy()
        true = np.where(True if known is None else known[0], values[0], np.nan)
        tail = true[-min(config.look_back, 2 * config.horizon) - config.horizon :]
        gap = [None] * (len(tail) - config.horizon)
        for place, name in enumerate(columns[:COLUMNS]):
            lines = [{"name": "true", "y": _plain(tail[:, place])}]
            for which in range(guess.shape[-1]):
                share = f"quantile {config.quantiles[which]:g}" if config.quantiles else "forecast"
                lines.append({"name": share, "y": [*gap, *_plain(guess[:, place, which])]})
            title = f"{name}, standardised, window {row + 1:,} of {len(part):,}"
            found.append({"title": title, "x_name": "steps ahead", "first": 1 - len(gap), "lines": lines})
    return found


def _plain(values: Values) -> list[float | None]:
    return [round(float(x), 5) if np.isfinite(x) else None for x in values]
