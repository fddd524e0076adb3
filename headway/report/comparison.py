"""A comparison of runs, as a table for a terminal and as an HTML page with curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from headway.report import format as w
from headway.report.charts import WIDTH, Line, Panel, Scale, axis_ticks, scale_for, view
from headway.report.page import render_page

LOOKS = ("train", "valid", "lr", "norm", "rate")
"""CSS classes of the curves, one per variant; further variants repeat them in dashes."""
FIRST = ("bleu", "rouge_l", "accuracy", "f1")
"""Metrics that come first; the others follow in the order of the log."""
NAMES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L"}
"""Usual spellings of metrics."""


def metric_names(found: Mapping[str, Any]) -> list[str]:
    """Metrics that any variant has, the most important first."""
    names = dict.fromkeys(name for variant in found["variants"] for name in variant["figures"])
    return sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def rows(found: Mapping[str, Any], most: int = 3) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table: one row per variant, with up to `most` metrics."""
    names = metric_names(found)[:most]
    lines = []
    for variant in found["variants"]:
        done = sum(run["status"] == "finished" for run in variant["runs"])
        count = str(done) if done == len(variant["runs"]) else f"{done} of {len(variant['runs'])}"
        lines.append(
            [
                variant["name"],
                *(" ".join(_value(variant["figures"].get(name))).rstrip() for name in names),
                *_cost(variant),
                count,
            ]
        )
    return [*_head(found, names), "runs"], lines


def _head(found: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    keys = found["keys"]
    first = "settings" if len(keys) > 2 else " ".join(keys) or "runs"
    return [first, *(name.replace("_", " ") for name in names), "parameters", "time", "tokens/s"]


def _cost(variant: Mapping[str, Any]) -> tuple[str, str, str]:
    size = w.of_all(variant.get("trained"), variant["parameters"])
    return size, w.duration(variant["seconds"]), w.brief(variant["tokens_per_second"])


def _value(metric: Mapping[str, Any] | None) -> tuple[str, str]:
    """1.234 ± 0.012 and [1.204, 1.264]: mean and standard deviation; confidence interval of the mean."""
    if metric is None:
        return w.ABSENT, ""
    mean, sd = w.fixed(metric["mean"]), metric["sd"]
    if sd is None:
        return mean, ""
    spread = f"{sd:.3f}" if sd < 0.01 and len(mean.partition(".")[2]) == 3 else w.fixed(sd)  # no finer than the mean
    return f"{mean} ± {spread}", f"[{w.fixed(metric['low'])}, {w.fixed(metric['high'])}]"


def length_rows(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table by length; empty if no run was evaluated by length."""
    bounds = sorted({(s["from"], s["to"]) for variant in found["variants"] for s in variant["slices"]})
    if not bounds:
        return [], []
    lines = []
    for variant in found["variants"]:
        known = {(s["from"], s["to"]): s["mean"] for s in variant["slices"]}
        lines.append([variant["name"], *(w.fixed(known.get(each)) for each in bounds)])
    ranges = (f"{low:.0f}" if low == high else f"{low:.0f}–{high:.0f}" for low, high in bounds)
    return [f"{_metric_name(found)} by length", *ranges], lines


def _metric_name(found: Mapping[str, Any]) -> str:
    name = str(next((s["figure"] for v in found["variants"] for s in v["slices"]), ""))
    return NAMES.get(name, name.replace("_", " "))


def render(found: Mapping[str, Any]) -> str:
    """The HTML page."""
    seeds, settings = ", ".join(map(str, found["seeds"])), " ".join(found["common"])
    slices = [variant["slices"] for variant in found["variants"]]
    middles = [[[(s["from"] + s["to"]) / 2, s["mean"]] for s in each] for each in slices]
    ends = [end for each in slices for s in each for end in (s["from"], s["to"])]
    loss = [variant["curve"] for variant in found["variants"]]
    values = {
        "title": f"{found['recipe']}: {', '.join(found['keys']) or 'runs'} compared",
        "about": f"seeds {seeds}" + (f"; {settings}" if settings else ""),
        "several": len(found["seeds"]) > 1,
        "results": _results(found),
        "intervals": _intervals(found),
        "curves": _plot(found, "loss", "step", loss, [0.0, *(x for each in loss for x, _ in each)]),
        "lengths": length_rows(found),
        "by_length": _plot(found, _metric_name(found), "tokens of the input", middles, ends),
    }
    return render_page("compare.html", values)


def _results(found: Mapping[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """Head and rows of the page's table: all metrics, and links to the runs' reports, one for each seed."""
    names = metric_names(found)
    lines = [
        {
            "name": variant["name"],
            "metrics": [_value(variant["figures"].get(name)) for name in names],
            "cost": _cost(variant),
            "reports": [(run, quote(f"{run['name']}/run/report.html")) for run in variant["runs"]],
        }
        for variant in found["variants"]
    ]
    return [*_head(found, names), "report of seed"], lines


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


def _plot(
    found: Mapping[str, Any],
    up: str,
    across: str,
    points: Sequence[Sequence[Sequence[float]]],
    ends: Sequence[float],
) -> dict[str, Any] | None:
    """A curve for each variant with two points or more. `up` and `across` name the axes; `ends` set their range."""
    lines = []
    for i, (variant, each) in enumerate(zip(found["variants"], points, strict=True)):
        x, y = np.array(each, dtype=np.float64).reshape(-1, 2).T
        lines += [Line(name=variant["name"], look=_look(i), x=x, y=y, dots=True)] if len(x) > 1 else []
    if not lines:
        return None
    margin = (max(ends) - min(ends)) * 0.02  # room for the last dot
    scale = Scale(min(ends), max(ends) + margin)
    describe = f"{up}, a curve for each of {len(lines)} variants, over: {across}."
    panel = view(Panel(key=up, title=up, describe=describe, lines=lines, tall=True), scale, [])
    return None if panel is None else {"panel": panel, "ticks": axis_ticks(scale), "across": across}
