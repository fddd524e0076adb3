"""The curves of a run for a page: the part of the axis that is shown, smoothed at full resolution, then thinned out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from headway.report.advice.evidence import throughput, validation_losses
from headway.report.charts import Scale, downsample
from headway.report.curves import MARK_KINDS, RULED, event_steps
from headway.report.format import metric_title
from headway.runs.events import Series, as_float, smooth
from headway.runs.history import History

Axis = Literal["step", "tokens", "seconds"]
AXES: tuple[Axis, ...] = ("step", "tokens", "seconds")
BINS = 600
"""A curve has the lowest and the highest point of so many bins: about one for each pixel of a page."""


def axes_of(run: History) -> list[Axis]:
    """The axes that a run can be drawn over: columns that are known and grow."""
    found = (name for name in AXES if len(run.steps[name]) and bool(np.isfinite(run.steps[name]).all()))
    return [name for name in found if bool((np.diff(run.steps[name]) >= 0).all())]


class Part:
    """A part of a run's axis."""

    def __init__(self, run: History, axis: Axis, low: float | None, high: float | None, share: float) -> None:
        self.run = run
        self.axis: Axis = axis if axis in axes_of(run) else "step"
        self.x = run.steps[self.axis]
        last = float(self.x[-1]) if len(self.x) else 1.0
        self.low, self.high = (0.0 if low is None else low), (last if high is None else high)
        self.first = max(0, int(np.searchsorted(self.x, self.low)) - 1)
        self.last = int(np.searchsorted(self.x, self.high, side="right")) + 1
        self.window = round(share * (min(self.last, len(self.x)) - self.first))
        """Steps that a smoothed value is the mean of: the same share of whatever part is shown."""

    def place(self, steps: Sequence[float] | Series) -> Series:
        """Where steps are on the axis."""
        found: Series = np.interp(np.asarray(steps, dtype=np.float64), self.run.steps["step"], self.x)
        return found

    def noisy(self, name: str, look: str, values: Series) -> list[dict[str, Any]]:
        """A curve with a value at each step, and its moving average."""
        if self.window < 2:
            return [self.each_step(name, look, values[self.first : self.last])]
        around = max(0, self.first - self.window)
        smoothed = smooth(values[around : self.last + self.window], self.window)
        raw = self.each_step(name, f"{look} raw", values[self.first : self.last])
        return [{**raw, "shadow": True}, self.each_step(name, look, smoothed[self.first - around : self.last - around])]

    def each_step(self, name: str, look: str, values: Series) -> dict[str, Any]:
        """A curve as it was logged; `values` are those of the part."""
        return line(name, look, self.x[self.first : self.last], values)

    def some_steps(self, name: str, look: str, steps: Sequence[float], values: Sequence[float]) -> list[dict[str, Any]]:
        """A curve with few points."""
        drawn = line(name, look, self.place(steps), np.array(values, dtype=np.float64))
        return [{**drawn, "dots": True}] if steps else []


def line(name: str, look: str, x: Series, y: Series) -> dict[str, Any]:
    """A curve as JSON, thinned out so that its extremes stay."""
    x, y = downsample(x, y, BINS)
    values = [float(f"{v:.5g}") if math.isfinite(v) else None for v in y.tolist()]
    return {"name": name, "look": look, "x": [float(f"{v:.9g}") for v in x.tolist()], "y": values, "noisy": True}


def curves(run: History, axis: Axis, low: float | None, high: float | None, share: float) -> dict[str, Any]:
    """All panels of a run over a part of an axis; `share` of it goes into a mean."""
    part = Part(run, axis, low, high, share)
    if not len(part.x):
        return {"axis": "step", "axes": [], "extent": [0, 1], "panels": [], "events": []}
    return {
        "axis": part.axis,
        "axes": axes_of(run),
        "extent": [0.0, float(part.x[-1])],
        "panels": _panels(part),
        "events": _events(part),
    }


def _panels(part: Part) -> list[dict[str, Any]]:
    run = part.run
    losses, goal, here = validation_losses(run), run.facts.primary_metric, slice(part.first, part.last)
    validation = part.some_steps("validation", "valid", [step for step, _ in losses], [loss for _, loss in losses])
    metric = [] if goal == "valid" else part.some_steps(metric_title(goal), "valid", *logged(run.evals, goal))
    saves = logged(run.events_of("save"), "memory")
    memory = part.some_steps("bytes", "lr", *saves) if len(saves[0]) > 1 else []
    noisy, rates = part.noisy, part.each_step("learning rate", "lr", run.steps["lr"][here])
    found = [
        _panel("loss", "Loss", [*noisy("training", "train", run.steps["loss"]), *validation], log=True, tall=True),
        _panel("goal", metric_title(goal).capitalize(), metric),
        _panel("lr", "Learning rate", [rates]),
        _panel("norm", "Gradient norm", noisy("gradient norm", "norm", run.steps["grad_norm"]), log=True),
        _panel("rate", "Tokens per second", noisy("tokens per second", "rate", throughput(run))),
        _panel("memory", "Peak memory", memory),
    ]
    return [panel for panel in found if any(any(y is not None for y in each["y"]) for each in panel["series"])]


def _panel(
    key: str, title: str, series: list[dict[str, Any]], *, log: bool = False, tall: bool = False
) -> dict[str, Any]:
    return {"key": key, "title": title, "series": series, "log": log, "tall": tall}


def logged(logged: Sequence[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Steps and values of events that have a number of this name."""
    pairs = ((as_float(event.get("step")), as_float(event.get(name))) for event in logged)
    known = [(step, value) for step, value in pairs if step is not None and value is not None]
    return [step for step, _ in known], [value for _, value in known]


def _events(part: Part) -> list[dict[str, Any]]:
    """What happened within the part, each kind in a row of its own."""
    low, high = (float(step) for step in np.interp([part.low, part.high], part.x, part.run.steps["step"]))
    low = low if part.low > 0 else 0.0  # what happened before the first step
    found = event_steps(part.run, Scale(low, high)) if high > low else {}
    return [
        {"kind": kind, "name": name, "sign": sign, "at": part.place(found[kind]).tolist(), "rule": kind in RULED}
        for kind, name, sign in MARK_KINDS
        if kind in found
    ]
