"""A comparison of runs, as a table for a terminal, rows for a spreadsheet, and an HTML page with curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from headway.report import format as w
from headway.report.charts import WIDTH, Line, Panel, Scale, axis_ticks, scale_for, view
from headway.report.page import render_page
from headway.runs.compare import COSTS

LOOKS = ("train", "valid", "lr", "norm", "rate")
"""CSS classes of the curves, one per variant; further variants repeat them in dashes."""
FIRST = ("bleu", "rouge_l", "accuracy", "f1")
"""Metrics that come first; then the one that selects checkpoints; the others follow in the order of the log."""
NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L"}
"""Usual spellings of metrics."""
ACROSS = {"step": "step", "tokens": "tokens", "seconds": "seconds of training", "flops": "FLOPs"}
"""What curves are drawn over, and its name under the axis."""
NAME_LETTERS = 40
METRICS = 3
"""Metrics in a terminal, if there is room."""


def metric_names(found: Mapping[str, Any]) -> list[str]:
    """Metrics that any variant has, the most important first."""
    names = dict.fromkeys(name for variant in found["variants"] for name in variant["figures"])
    order = [*FIRST, found.get("primary")]
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def verdicts(found: Mapping[str, Any]) -> dict[str, str]:
    """What each variant's first metric says, beside the reference."""
    name = next(iter(metric_names(found)), "")
    return {v["name"]: v["versus"][name]["verdict"] for v in found["variants"] if name in v.get("versus", {})}


def verdict_lines(found: Mapping[str, Any]) -> list[str]:
    """The verdicts as lines below a table."""
    known = verdicts(found)
    if not known:
        return []
    metric = w.metric_title(metric_names(found)[0])
    return [f"{metric}, against {found['against']}:", *(f"  {_short(name)}: {told}" for name, told in known.items())]


def rows(found: Mapping[str, Any], width: int = 0) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table, one row per variant: as many metrics and costs as fit; 0: whatever the width."""
    shapes = [(metrics, cost) for cost in ("all", "less", "least") for metrics in range(METRICS, 0, -1)]
    for metrics, cost in shapes:
        head, lines = _rows(found, metrics, cost)
        if not width or _wide([head, *lines]) <= width:
            break
    return head, lines


def _wide(lines: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True)) - 2


def _rows(found: Mapping[str, Any], metrics: int, cost: str) -> tuple[list[str], list[list[str]]]:
    names = metric_names(found)[:metrics]
    heads = {"all": ["parameters", "time", "tokens/s"], "less": ["parameters", "time"], "least": []}[cost]
    lines = []
    for variant in found["variants"]:
        figures = [" ".join(_value(variant["figures"].get(name), brief=True)).rstrip() for name in names]
        lines.append([_short(variant["name"]), *figures, *_cost(variant)[: len(heads)], _count(variant)])
    return [_first(found), *(name.replace("_", " ") for name in names), *heads, "runs"], lines


def _first(found: Mapping[str, Any]) -> str:
    keys = found["keys"]
    return "settings" if len(keys) > 2 else " ".join(keys) or "runs"


def _short(name: str) -> str:
    return name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"


def _count(variant: Mapping[str, Any]) -> str:
    """2; 1 of 3 (1 failed, 1 waiting)"""
    states = [run["status"] for run in variant["runs"]]
    done = states.count("finished")
    if done == len(states):
        return str(done)
    others = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states) if each != "finished")
    return f"{done} of {len(states)} ({others})"


def _cost(variant: Mapping[str, Any]) -> tuple[str, str, str]:
    size = w.of_all(variant.get("trained"), variant["parameters"])
    return size, w.duration(variant["seconds"]), w.brief(variant["tokens_per_second"])


def _value(metric: Mapping[str, Any] | None, brief: bool = False) -> tuple[str, str]:
    """1.234 ± 0.012 and [1.204, 1.264]: mean and standard deviation; confidence interval. Brief: without deviation."""
    if metric is None:
        return w.ABSENT, ""
    mean, sd = w.fixed(metric["mean"]), metric["sd"]
    if sd is None:
        return mean, ""
    ends = f"[{w.fixed(metric['low'])}, {w.fixed(metric['high'])}]"
    if brief:
        return mean, ends
    spread = f"{sd:.3f}" if sd < 0.01 and len(mean.partition(".")[2]) == 3 else w.fixed(sd)  # no finer than the mean
    return f"{mean} ± {spread}", ends


def length_rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table by length; empty without two lengths."""
    bounds = sorted({(s["from"], s["to"]) for variant in found["variants"] for s in variant["slices"]})
    if len(bounds) < 2:
        return [], []
    lines = []
    for variant in found["variants"]:
        known = {(s["from"], s["to"]): s["mean"] for s in variant["slices"]}
        lines.append([_short(variant["name"]), *(w.fixed(known.get(each)) for each in bounds)])
    ranges = (f"{low:.0f}" if low == high else f"{low:.0f}–{high:.0f}" for low, high in bounds)
    return [f"{_metric_name(found)} by length", *ranges], lines


def _metric_name(found: Mapping[str, Any]) -> str:
    name = str(next((s["figure"] for v in found["variants"] for s in v["slices"]), ""))
    return NAMES.get(name, name.replace("_", " "))


def problem_lines(found: Mapping[str, Any]) -> list[str]:
    """The runs that failed or diverged, each with its reason and the command that repeats it."""
    bad = [(v["name"], run) for v in found["variants"] for run in v["runs"] if run.get("error")]
    return [f"{name}, seed {run['seed']}: {run['error']}\n  again: {run['command']}" for name, run in bad]


def table_of_runs(found: Mapping[str, Any]) -> list[list[Any]]:
    """A head and a row for each run, for a spreadsheet: its settings, its metrics, what it cost."""
    names, keys = metric_names(found), found["keys"]
    lines: list[list[Any]] = [["variant", *keys, "seed", "status", "run", *names, *COSTS, "error"]]
    for variant in found["variants"]:
        values = [word.partition("=")[2] for word in variant["settings"]]
        for run in variant["runs"]:
            figures = [_of_seed(variant["figures"].get(name), run["seed"]) for name in names]
            costs = [run.get(name) for name in COSTS]
            told = [run["seed"], run["status"], run["name"], *figures, *costs, run.get("error", "")]
            lines.append([variant["name"], *values, *told])
    return lines


def _of_seed(figure: Mapping[str, Any] | None, seed: int) -> float | None:
    return None if figure is None else dict(zip(figure["seeds"], figure["values"], strict=True)).get(seed)


def render(found: Mapping[str, Any]) -> str:
    """The HTML page."""
    seeds, settings = ", ".join(map(str, found["seeds"])), " ".join(found["common"])
    waiting = f"{found['waiting']} runs are still to come; " if found["waiting"] else ""
    values = {
        "title": found.get("title") or f"{found['recipe']}: {', '.join(found['keys']) or 'runs'} compared",
        "why": found.get("why", ""),
        "command": found.get("command", ""),
        "about": f"{waiting}seeds {seeds}" + (f"; {settings}" if settings else ""),
        "several": len(found["seeds"]) > 1,
        "method": found["method"],
        "machines": found["machines"],
        "results": _results(found),
        "verdicts": verdict_lines(found),
        "problems": problem_lines(found),
        "intervals": _intervals(found),
        "curves": _curves(found),
        "lengths": length_rows(found),
        "by_length": _by_length(found),
        "costs": _costs(found),
        "differences": _differences(found),
    }
    return render_page("compare.html", values)


def _results(found: Mapping[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """Head and rows of the page's table: all metrics, and links to the runs' reports, one for each seed."""
    names = metric_names(found)
    lines = [
        {
            "name": variant["name"],
            "metrics": [_value(variant["figures"].get(name)) for name in names],
            "reports": [(run, _report_link(run)) for run in variant["runs"]],
        }
        for variant in found["variants"]
    ]
    return [_first(found), *(name.replace("_", " ") for name in names), "report of seed"], lines


def _report_link(run: Mapping[str, Any]) -> str:
    """Where a run's report is, from the page; empty for a run without a folder."""
    return quote(f"{run['name']}/run/report.html") if run["name"] else ""


def _costs(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What each variant costs, as means over its runs; and what made it equal to the others."""
    head = [_first(found), "parameters", "steps", "FLOPs", "time", "tokens/s", "memory"]
    equal = bool(found["equal"])
    lines = []
    for v in found["variants"]:
        size, time, rate = _cost(v)
        each = [v["name"], size, w.count(v["steps"]), w.brief(v["flops"]), time, rate, w.size(v["memory"])]
        lines.append([*each, v["terms"]] if equal else each)
    return [*head, f"equal {found['equal']}"] if equal else head, lines


def _differences(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The settings in which the recipes differ, with a column for each variant."""
    lines = [[key, *map(_setting, values)] for key, values in found["differences"].items()]
    return ["setting", *(variant["name"] for variant in found["variants"])], lines


def _setting(value: Any) -> str:
    if value is None:
        return w.ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def _intervals(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first metric of each variant on one axis: its runs, their mean, its interval. None without a metric."""
    name = next(iter(metric_names(found)), "")
    known = [(i, v, v["figures"][name]) for i, v in enumerate(found["variants"]) if name in v["figures"]]
    values = [x for _, _, m in known for x in (*m["values"], m["low"], m["high"]) if x is not None]
    scale = scale_for([Line(name=name, look="", x=np.zeros(len(values)), y=np.array(values))], log=False)
    if scale is None:
        return None

    def place(value: float) -> float:
        return WIDTH * float(scale(np.array(value)))

    lines = [
        {
            "name": variant["name"],
            "look": _look(i),
            "mean": place(metric["mean"]),
            "ends": () if metric["low"] is None else (place(metric["low"]), place(metric["high"])),
            "runs": [place(value) for value in metric["values"]],
        }
        for i, variant, metric in known
    ]
    return {"lines": lines, "width": WIDTH, "ticks": axis_ticks(scale), "across": w.metric_title(name)}


def _look(variant: int) -> str:
    return LOOKS[variant % len(LOOKS)] + (" second" if variant >= len(LOOKS) else "")


def _curves(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each metric that was logged during training: its plots over steps, tokens, time and FLOPs, to switch between."""
    metrics = dict.fromkeys(name for variant in found["variants"] for name in variant["curves"])
    curves = []
    for metric in metrics:
        every = [variant["curves"].get(metric, []) for variant in found["variants"]]
        key = "loss" if metric == "valid" else metric
        plots = {}
        for axis, across in ACROSS.items():
            points = [[(p[axis], p["mean"], p["low"], p["high"]) for p in each if axis in p] for each in every]
            if drawn := plot(found, f"{key}-{axis}", w.metric_title(metric), across, points, origin=True):
                plots[axis] = drawn
        if plots:
            curves.append({"title": w.metric_title(metric), "key": key, "plots": plots})
    return curves


def _by_length(found: Mapping[str, Any]) -> dict[str, Any] | None:
    every = [variant["slices"] for variant in found["variants"]]
    points = [[((s["from"] + s["to"]) / 2, s["mean"], s["mean"], s["mean"]) for s in each] for each in every]
    ends = [end for each in every for s in each for end in (s["from"], s["to"])]
    return plot(found, _metric_name(found), _metric_name(found), "tokens of the input", points, ends)


def plot(
    found: Mapping[str, Any],
    key: str,
    up: str,
    across: str,
    points: Sequence[Sequence[tuple[float, float, float, float]]],
    ends: Sequence[float] = (),
    *,
    origin: bool = False,
) -> dict[str, Any] | None:
    """A curve of (x, mean, lowest, highest) for each variant with two points or more, with a band between the runs.

    `up` and `across` name the axes; `ends` widen the range of x, `origin` begins it at zero.
    """
    lines = []
    for i, (variant, each) in enumerate(zip(found["variants"], points, strict=True)):
        x, y, low, high = np.array(each, dtype=np.float64).reshape(-1, 4).T
        band = (low, high) if len(x) and bool((high > low).any()) else None
        if len(x) > 1:
            lines.append(Line(name=variant["name"], look=_look(i), x=x, y=y, dots=True, band=band))
    if not lines:
        return None
    reach = [*ends, *([0.0] if origin else []), *(value for line in lines for value in (line.x.min(), line.x.max()))]
    margin = (max(reach) - min(reach)) * 0.02  # room for the last dot
    scale = Scale(float(min(reach)), float(max(reach)) + float(margin))
    describe = f"{up}, a curve for each of {len(lines)} variants, over: {across}."
    panel = view(Panel(key=key, title=up, describe=describe, lines=lines, tall=True), scale, [])
    return None if panel is None else {"panel": panel, "ticks": axis_ticks(scale), "across": across}
