"""How far a model follows a system: errors of rollouts against time, the prediction horizon, the energy.

Errors are in units of the deviation of the states, a mean over the numbers of a state. Letters: N rollouts, T time
steps, C numbers of a state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headway.data.series.scaling import Scaling
from headway.data.series.times import Numbers
from headway.data.synthetic.systems import System
from headway.joint.series import SeriesModel
from headway.tasks.metrics.bootstrap import Evaluation, mean_interval
from headway.tasks.series.predict import predicted

SHOWN = 3
"""Numbers of a state whose course a report shows."""
LYAPUNOV, TIME, STEPS = "Lyapunov times", "time", "steps"
Rule = Callable[[Numbers, int], Numbers]
"""A rollout: standardised states (N, L, C) and a number of steps, to (N, T, C)."""


@dataclass(frozen=True)
class Truth:
    """Held-out beginnings and what really follows, standardised."""

    read: Numbers
    """(N, L, C)"""
    true: Numbers
    """(N, T, C)"""
    scaling: Scaling
    threshold: float
    system: System | None = None
    """The simulated system, if it is one."""

    @property
    def unit(self) -> str:
        """What the prediction horizon is counted in."""
        if self.system is not None and self.system.exponent:
            return LYAPUNOV
        return STEPS if self.scaling.clock.kind == "rows" else TIME

    @property
    def per_step(self) -> float:
        """Units of a time step; dates are counted in steps."""
        step = self.scaling.clock.step if self.scaling.clock.kind == "number" else 1.0
        return step * self.system.exponent if self.unit == LYAPUNOV and self.system is not None else step

    def errors(self, found: Numbers) -> Numbers:
        """(N, T)"""
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.sqrt(((found - self.true) ** 2).mean(2))
        return np.where(np.isfinite(error), error, np.inf)

    def horizons(self, errors: Numbers) -> Numbers:
        """(N,): the time until the error first exceeds the threshold; all of the rollout if it never does."""
        over = errors > self.threshold
        steps = np.where(over.any(1), over.argmax(1), errors.shape[1])
        return np.asarray(steps * self.per_step)

    def drift(self, found: Numbers) -> Numbers | None:
        """(N, T): how far the energy is from that at the beginning, in units of its deviation among rollouts."""
        if self.system is None or self.system.energy is None:
            return None
        start = self.system.energy(self.scaling.restore(self.true[:, 0]))
        energy = self.system.energy(self.scaling.restore(found))
        return np.asarray(abs(energy - start[:, None]) / (start.std() or 1.0))

    def metrics(self, found: Numbers) -> dict[str, Numbers]:
        """A number for each rollout; an error counts as 10 at most, as some rollouts leave all bounds."""
        errors = self.errors(found).clip(max=10)
        result = {
            "prediction_horizon": self.horizons(errors),
            "rollout_error": errors.mean(1),
            "step_error": errors[:, 0],
        }
        drift = self.drift(found)
        return result if drift is None else {**result, "energy_drift": drift.mean(1).clip(max=10)}


def model_rollout(model: SeriesModel) -> Rule:
    """The model, from its own predictions."""

    def roll(read: Numbers, steps: int) -> Numbers:
        found = predicted(model, torch.from_numpy(read.astype(np.float32)), steps)[..., 0]
        return np.asarray(found.numpy())

    return roll


def no_change(read: Numbers, steps: int) -> Numbers:
    """The last state."""
    return np.repeat(read[:, -1:], steps, 1)


def straight_on(read: Numbers, steps: int) -> Numbers:
    """The last change again and again."""
    if read.shape[1] < 2:
        return no_change(read, steps)
    return np.asarray(read[:, -1:] + np.arange(1, steps + 1)[:, None] * (read[:, -1:] - read[:, -2:-1]))


RULES: dict[str, Rule] = {"no change": no_change, "last change again": straight_on}


def evaluation(model: SeriesModel, truth: Truth) -> Evaluation:
    """In full: metrics with intervals, simple rollouts beside them, error and energy against time, a course."""
    steps = truth.true.shape[1]
    rollouts = {"this model": model_rollout(model)(truth.read, steps)}
    rollouts |= {name: rule(truth.read, steps) for name, rule in RULES.items()}
    each = {name: truth.metrics(found) for name, found in rollouts.items()}
    rows = [
        {"kind": name, "examples": len(truth.read), **{key: float(values.mean()) for key, values in metrics.items()}}
        for name, metrics in each.items()
    ]
    ours = {name: mean_interval(values) for name, values in each["this model"].items()}
    about = f"prediction horizon in {truth.unit}: until the error exceeds {truth.threshold:g} deviations"
    details: dict[str, Any] = {
        "by_model": rows,
        "measured_by": about if truth.unit != LYAPUNOV else f"{about}; exponent {truth.system.exponent:g}",  # type: ignore[union-attr]
        "charts": _charts(truth, rollouts),
    }
    return Evaluation(len(truth.read), ours, details)


def _charts(truth: Truth, rollouts: dict[str, Numbers]) -> list[dict[str, Any]]:
    axis = {"x_name": truth.unit, "first": truth.per_step, "step": truth.per_step}
    errors = {name: truth.errors(found).clip(max=10) for name, found in rollouts.items()}
    ours = errors["this model"]
    lines = [{"name": "median", "y": np.median(ours, 0).tolist()}]
    lines += [{"name": f"{share} %", "y": np.quantile(ours, share / 100, 0).tolist()} for share in (10, 90)]
    lines += [{"name": name, "y": np.median(errors[name], 0).tolist()} for name in RULES]
    lines += [{"name": "threshold", "y": [truth.threshold] * ours.shape[1]}]
    found = [{"title": "error of rollouts against time", **axis, "log": True, "lines": lines}]
    drift = truth.drift(rollouts["this model"])
    if drift is not None:
        curve = np.median(drift.clip(max=10), 0).tolist()
        found.append({"title": "drift of the energy, median", **axis, "lines": [{"name": "model", "y": curve}]})
    middle = int(np.argsort(truth.horizons(ours))[len(ours) // 2])
    true, guess = (truth.scaling.restore(part[middle]) for part in (truth.true, rollouts["this model"]))
    for place, name in enumerate(truth.scaling.columns[:SHOWN]):
        both = [("true", true), ("model", guess)]
        lines = [{"name": which, "y": [round(float(x), 5) for x in values[:, place]]} for which, values in both]
        found.append({"title": f"{name}, a rollout of median horizon", **axis, "lines": lines})
    return found
