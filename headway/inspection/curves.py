"""The curves of a run on one page: which there are, where something happened, and their numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from headway.inspection import wording as w
from headway.inspection.charts import Line, Panel, Scale, downsample, draw, nice_ticks, table, tick_name
from headway.inspection.findings import scored_steps, throughput
from headway.inspection.history import History
from headway.inspection.tape import Series, smooth, smoothing, whole

MARKS = 30
"""Signs of one kind that fit side by side."""
HOVER_BINS = 250
"""Points of a curve that the page's script can read values from, two of each."""
MARK_KINDS = (
    ("save", "saved", "●"), ("best", "best", "★"), ("restart", "resumed", "↻"), ("spike", "spike", "▲"),
    ("nan", "NaN", "✕"),
)  # fmt: skip
"""Kind of event, its row above the curves, its sign."""
RULED = ("best", "restart", "spike", "nan")
"""Kinds that are also drawn through the curves."""


def curves(run: History) -> str:
    """All panels on one axis of steps, the events above them, and each panel's numbers."""
    steps = run.steps["step"]
    if not len(steps):
        return ""
    across = Scale(0.0, 1.01 * max(1.0, float(steps[-1])))  # a little room for the last point
    shown = panels(run)
    marks = marks_of(run, across)
    rules = [(kind, at) for kind, places in marks.items() if kind in RULED for at in places]
    drawn = [(panel, html) for panel in shown if (html := draw(panel, across, rules))]
    axis = "".join(
        f'<span style="left:{100 * float(across(np.array(t))):.2f}%">{escape(tick_name(t))}</span>'
        for t in nice_ticks(across.low, across.high)
    )
    tables = "".join(
        f"<details><summary>{escape(panel.title)} as a table</summary>"
        f"{table([line for line in panel.lines if 'raw' not in line.look], w.number)}</details>"
        for panel, _ in drawn
    )
    return (
        '<section class="curves"><h2>Curves</h2><fieldset class="controls"><span>Scale of loss and gradient</span>'
        '<label><input type="radio" name="scale" id="scale-linear" checked> linear</label>'
        '<label><input type="radio" name="scale" id="scale-log"> logarithmic</label>'
        '<span class="scripted" hidden>Drag across a curve to zoom.</span>'
        '<button type="button" id="reset" hidden>Show all</button></fieldset>'
        f'<div class="charts" role="group" aria-label="Curves over the steps of training">{_rail(marks, across)}'
        f'{"".join(html for _, html in drawn)}<div class="axis">{axis}</div><p class="axis-name">step</p></div>'
        f'<div class="tables">{tables}</div>'
        f'<script type="application/json" id="series">{hover_data([p for p, _ in drawn], across)}</script></section>'
    )


def panels(run: History) -> list[Panel]:
    """The curves of a run; a panel without a value is left out when it is drawn."""
    steps = run.steps["step"]
    where, scores = np.array(scored_steps(run), dtype=np.float64).reshape(-1, 2).T
    valid = [Line(name="validation", look="valid", x=where, y=scores)] if len(where) else []
    text = "over the steps of training. The numbers are in the table below."
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
            describe=f"Length of the gradient before it is clipped, {text}",
            lines=_both("norm", steps, run.steps["grad_norm"]),
            log=True,
        ),
        Panel(
            key="rate",
            title="Tokens a second",
            describe=f"Tokens a second {text}",
            lines=_both("rate", steps, throughput(run)),
        ),
    ]


def _both(look: str, steps: Series, values: Series, what: str = "") -> list[Line]:
    """A curve as it is, faint, and smoothed on top of it; a short one as it is only."""
    window = smoothing(len(steps))
    raw = Line(name=f"{what}each step", look=f"{look} raw", x=steps, y=values)
    if window == 1:
        return [Line(name=raw.name, look=look, x=steps, y=values)]
    return [raw, Line(name=f"{what}smoothed over {w.count(window)} steps", look=look, x=steps, y=smooth(values))]


def marks_of(run: History, across: Scale) -> dict[str, list[float]]:
    """Steps at which each kind of event happened; where they are close together, one stands for all around it."""
    found: dict[str, list[float]] = {}
    for kind, _, _ in MARK_KINDS:
        at = [float(step) for e in run.of(kind) if (step := whole(e.get("step"))) is not None]
        if kind == "best":
            best = whole((run.facts.best_eval or {}).get("step"))
            at = [float(best)] if best is not None else at[-1:]
        inside = sorted(step for step in at if across.low <= step <= across.high)
        cells = {int(float(across(np.array(step))) * MARKS): step for step in inside}
        if cells:
            found[kind] = list(cells.values())
    return found


def _rail(marks: Mapping[str, Sequence[float]], across: Scale) -> str:
    rows = []
    for kind, name, sign in MARK_KINDS:
        signs = "".join(
            f'<span class="mark {kind}" data-at="{at:.0f}" style="left:{100 * float(across(np.array(at))):.2f}%" '
            f'title="{name}, step {at:,.0f}">{sign}</span>'
            for at in marks.get(kind, ())
        )
        if signs:
            rows.append(f'<div class="rail"><span class="y">{name}</span><div class="area">{signs}</div></div>')
    return "".join(rows)


def hover_data(shown: Iterable[Panel], across: Scale) -> str:
    """The curves as data, for the page's script to read values from."""
    series = []
    for panel in shown:
        for line in panel.lines:
            if "raw" not in line.look:
                x, y = downsample(line.x, line.y, HOVER_BINS)
                values = [float(f"{v:.5g}") if math.isfinite(v) else None for v in y.tolist()]
                name = {"train": "training", "valid": "validation"}.get(line.look, panel.title.lower())
                series.append({"panel": panel.key, "name": name, "x": [int(v) for v in x], "y": values})
    text = json.dumps({"low": across.low, "high": across.high, "series": series}, allow_nan=False)
    return text.replace("<", "\\u003c")
