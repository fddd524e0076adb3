"""Several runs side by side: their curves, the settings that differ, their metrics and what can be said of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.hub.run_names import run_folders
from headway.jsonfile import read_json
from headway.report import format as w
from headway.report.comparison import metric_names, table_of_runs
from headway.report.report import json_value
from headway.runs.events import Series
from headway.runs.history import History
from headway.runs.variants import compare_runs, variants
from headway.studio.runs.curves import AXES, Axis, Part, axes_of, logged

MOST_RUNS = 64
METRICS = 8
LINES = 16
"""Runs whose training loss is drawn."""
FILE = "compare.json"
LIMIT = 16_000_000


def comparisons(out: Path) -> list[dict[str, Any]]:
    """The folders that `headway compare` has made, newest first: name, title, number of runs."""
    try:
        found = sorted(out.glob(f"*/{FILE}"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    return [
        {"name": path.parent.name, "title": _title(path), "runs": len(run_folders(path.parent))}
        for path in found
        if not path.parent.name.startswith(".")
    ]


def _title(path: Path) -> str:
    try:
        told = read_json(path, limit=LIMIT)
    except HeadwayError:
        return ""
    title = told.get("title") or told.get("command")
    return str(json_value(title)) if isinstance(title, str) else ""


def compared(names: Sequence[str], runs: Sequence[History], baseline: str) -> dict[str, Any]:
    """The facts of a comparison for its page; `names` are those by which the studio knows the runs."""
    found = compare_runs(runs, baseline)
    known = {id(run): name for name, run in zip(names, runs, strict=True)}
    groups = variants(runs)
    titles = metric_names(found)[:METRICS]
    values = {
        "variants": [
            {
                "name": each["name"],
                "look": list(groups).index(each["name"]),
                "runs": [
                    {"name": known[id(run)], "status": run.status, "seed": run.recipe.get("seed")}
                    for run in groups[each["name"]]
                ],
                "metrics": [_metric(each, name) for name in titles],
                "costs": [
                    each["steps"],
                    each["seconds"],
                    each["tokens_per_second"],
                    each["parameters"],
                    each["memory"],
                ],
            }
            for each in found["variants"]
        ],
        "metrics": [w.metric_title(name) for name in titles],
        "several": any(len(group) > 1 for group in groups.values()),
        "differences": found["differences"],
        "method": found["method"],
        "axes": [axis for axis in AXES if all(axis in axes_of(run) for run in runs)],
    }
    rows = io.StringIO()
    csv.writer(rows, lineterminator="\n").writerows(table_of_runs(found))
    return {**json_value(values), "csv": rows.getvalue()}


def _metric(variant: dict[str, Any], name: str) -> dict[str, Any] | None:
    figure = variant["figures"].get(name)
    if figure is None:
        return None
    told = variant["versus"].get(name, {}).get("verdict", "")
    return {**{key: figure[key] for key in ("mean", "sd", "low", "high", "values")}, "verdict": told}


def overlaid(
    runs: Sequence[History], axis: Axis, low: float | None, high: float | None, share: float
) -> dict[str, Any]:
    """The curves of all runs in one panel for each quantity; runs of one variant have one look."""
    parts = [
        (place, _line_name(name, run, len(group)), Part(run, axis, low, high, share))
        for place, (name, group) in enumerate(variants(runs).items())
        for run in group
        if len(run.steps["step"])
    ]
    goals = dict.fromkeys(["valid", *(part.run.facts.primary_metric for _, _, part in parts)])
    panels: list[dict[str, Any]] = [
        {"key": "loss", "title": "Training loss", "log": True, "tall": True, "series": _each(parts, "loss")},
        *(
            {
                "key": f"eval-{name}",
                "title": w.metric_title(name).capitalize(),
                "log": name == "valid",
                "tall": True,
                "series": _evals(parts, name),
            }
            for name in goals
        ),
        {"key": "lr", "title": "Learning rate", "series": _each(parts, "lr")},
        {"key": "norm", "title": "Gradient norm", "log": True, "series": _each(parts, "grad_norm")},
    ]
    last = max((float(part.x[-1]) for _, _, part in parts), default=1.0)
    shown = [panel for panel in panels if any(y is not None for each in panel["series"] for y in each["y"])]
    return {"axis": axis, "extent": [0.0, last], "panels": shown, "events": []}


def _line_name(variant: str, run: History, count: int) -> str:
    return variant if count == 1 else f"{variant}, seed {run.recipe.get('seed')}"


Parts = Sequence[tuple[int, str, Part]]


def _each(parts: Parts, column: str) -> list[dict[str, Any]]:
    """A column of the log of each run, smoothed; what is not smoothed would hide the others."""
    found = []
    for place, name, part in parts[:LINES]:
        values: Series = part.run.steps[column]
        drawn = (
            part.noisy(name, "", values)[-1]
            if column != "lr"
            else part.each_step(name, "", values[part.first : part.last])
        )
        found.append({**drawn, "variant": place})
    return found


def _evals(parts: Parts, metric: str) -> list[dict[str, Any]]:
    """A metric of each run's evaluations."""
    found = (
        (place, part.some_steps(name, "", *logged(part.run.evals, metric))) for place, name, part in parts[: 2 * LINES]
    )
    return [{**line, "variant": place} for place, lines in found for line in lines]
