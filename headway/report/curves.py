"""The curves of a run's report: loss, learning rate, gradient norm, speed; events above them; tables below."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from markupsafe import Markup

from headway.report import format as w
from headway.report.advice.evidence import throughput, validation_losses
from headway.report.charts import (
    HEIGHT,
    WIDTH,
    Line,
    Panel,
    Scale,
    axis_ticks,
    downsample,
    path_of,
    scale_for,
    table,
    view,
)
from headway.report.page import render_macro
from headway.runs.events import Series, as_count, smooth, smoothing_window
from headway.runs.history import History

MARKS = 30
"""The most marks of one kind in a row."""
HOVER_BINS = 250
"""Bins of a curve whose values the page's script shows under the pointer."""
MARK_KINDS = (
    ("save", "saved", "●"), ("best", "best", "★"), ("restart", "resumed", "↻"), ("spike", "spike", "▲"),
    ("nan", "NaN", "✕"),
)  # fmt: skip
"""Kind of event, its title above the curves, its symbol."""
COLOURS = {"training": "#1f6fb2", "validation": "#c2571a"}
"""Colours of a curve outside the page: readable on white and on black."""
RULED = ("best", "restart", "spike", "nan")
"""Kinds of events that are also drawn as a line through the curves."""


def curves(run: History) -> Markup:
    """All panels on a common axis of steps, with events above and tables below."""
    steps = run.steps["step"]
    if not len(steps):
        return Markup("")
    x_scale = Scale(0.0, 1.01 * max(1.0, float(steps[-1])))  # room for the last point
    marks = event_steps(run, x_scale)
    rules = [(kind, at) for kind, places in marks.items() if kind in RULED for at in places]
    drawn = [(panel, found) for panel in panels(run) if (found := view(panel, x_scale, rules)) is not None]
    smoothed = [(p.title, [line for line in p.lines if "raw" not in line.look]) for p, _ in drawn]
    values = {
        "rail": _rail(marks, x_scale),
        "panels": [found for _, found in drawn],
        "ticks": axis_ticks(x_scale),
        "tables": [(title, table(lines, w.number)) for title, lines in smoothed],
        "series": Markup(hover_data([panel for panel, _ in drawn], x_scale)),
    }
    return render_macro("curves.html", "curves", values)


def panels(run: History) -> list[Panel]:
    """The panels of a run; those without a value are not drawn."""
    steps = run.steps["step"]
    where, scores = np.array(validation_losses(run), dtype=np.float64).reshape(-1, 2).T
    valid = [Line(name="validation", look="valid", x=where, y=scores)] if len(where) else []
    text = "over the training steps. The values are in the table below."
    return [
        Panel(
            key="loss",
            title="Loss",
            describe=f"Loss in nats, lower is better, {text}",
            lines=[*_both("train", steps, run.steps["loss"], "training, "), *valid],
            log=True,
            tall=True,
        ),
        Panel(
            key="lr",
            title="Learning rate",
            describe=f"Learning rate {text}",
            lines=[Line(name="at each step", look="lr", x=steps, y=run.steps["lr"])],
        ),
        Panel(
            key="norm",
            title="Gradient norm",
            describe=f"Norm of the gradient before clipping, {text}",
            lines=_both("norm", steps, run.steps["grad_norm"]),
            log=True,
        ),
        Panel(
            key="rate",
            title="Tokens per second",
            describe=f"Tokens per second {text}",
            lines=_both("rate", steps, throughput(run)),
        ),
    ]


def _both(look: str, steps: Series, values: Series, what: str = "") -> list[Line]:
    """The raw curve, faint, and its moving average; only the raw curve if it is short."""
    window = smoothing_window(len(steps))
    raw = Line(name=f"{what}each step", look=f"{look} raw", x=steps, y=values)
    if window == 1:
        return [Line(name=raw.name, look=look, x=steps, y=values)]
    return [raw, Line(name=f"{what}smoothed over {w.count(window)} steps", look=look, x=steps, y=smooth(values))]


def event_steps(run: History, x_scale: Scale) -> dict[str, list[float]]:
    """The steps of each kind of event; one mark stands for events that are close together."""
    found: dict[str, list[float]] = {}
    for kind, _, _ in MARK_KINDS:
        at = [float(step) for e in run.events_of(kind) if (step := as_count(e.get("step"))) is not None]
        if kind == "best":
            best = as_count((run.facts.best_eval or {}).get("step"))
            at = [float(best)] if best is not None else at[-1:]
        inside = sorted(step for step in at if x_scale.low <= step <= x_scale.high)
        cells = {int(float(x_scale(np.array(step))) * MARKS): step for step in inside}
        if cells:
            found[kind] = list(cells.values())
    return found


def _rail(marks: Mapping[str, Sequence[float]], x_scale: Scale) -> list[tuple[str, str, str, list[tuple[int, float]]]]:
    """Kind, title and symbol of each kind of event, with steps and positions in per cent."""
    return [
        (kind, name, sign, [(round(at), 100 * float(x_scale(np.array(at)))) for at in marks[kind]])
        for kind, name, sign in MARK_KINDS
        if marks.get(kind)
    ]


def hover_data(shown: Iterable[Panel], x_scale: Scale) -> str:
    """The curves as JSON, for the page's script."""
    series = []
    for panel in shown:
        for line in panel.lines:
            if "raw" not in line.look:
                x, y = downsample(line.x, line.y, HOVER_BINS)
                values = [float(f"{v:.5g}") if math.isfinite(v) else None for v in y.tolist()]
                name = {"train": "training", "valid": "validation"}.get(line.look, panel.title.lower())
                series.append({"panel": panel.key, "name": name, "x": [int(v) for v in x], "y": values})
    text = json.dumps({"low": x_scale.low, "high": x_scale.high, "series": series}, allow_nan=False)
    return text.replace("<", "\\u003c")


def loss_curve(run: History) -> str:
    """The smoothed training loss and the validation loss as a small SVG without a style sheet, for a notebook."""
    steps = run.steps["step"]
    x, y = np.array(validation_losses(run), dtype=np.float64).reshape(-1, 2).T
    lines = [
        Line(name="training", look="train", x=steps, y=smooth(run.steps["loss"])),
        Line(name="validation", look="valid", x=x, y=y),
    ]
    lines = [line for line in lines if len(line.x) > 1]
    scale = scale_for(lines, log=False)
    if scale is None:
        return ""
    across = Scale(0.0, max(1.0, *(float(line.x[-1]) for line in lines)))
    paths = "".join(
        f'<path d="{path_of(*downsample(line.x, line.y), across, scale)}" fill="none" stroke="{COLOURS[line.name]}"'
        ' stroke-width="2" vector-effect="non-scaling-stroke"/>'
        for line in lines
    )
    names = ", ".join(
        f'<span style="color:{COLOURS[line.name]}">{line.name} loss</span> '
        f"{w.number(float(line.y[0]))} → {w.number(float(line.y[-1]))}"
        for line in lines
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="loss over the steps"'
        f' style="width:100%;max-width:480px;height:120px;display:block">{paths}</svg>'
        f"<small>{names}, over {w.count(across.high)} steps</small>"
    )
