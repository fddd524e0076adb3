"""The report of a run: a self-contained HTML page and the same values as JSON, made from the log at any time."""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headway.config.toml import to_toml
from headway.errors import counted
from headway.hub.weights import writing
from headway.progress import bar
from headway.report import sections
from headway.report.advice.evidence import Evidence, uniform_loss
from headway.report.advice.rules import suggestions
from headway.report.curves import curves
from headway.report.diagnostics import data_name, describe_data, health, verdict
from headway.report.evaluation import PICTURE_URL
from headway.report.page import render_page
from headway.runs.events import Event, as_count, as_float
from headway.runs.history import History, read_evaluation, read_run

FORMAT_VERSION = 1
HELD_BACK = "a held-out part of the same data"
COMMAND = "headway train run/recipe.toml"
TEXT_LETTERS = 1500
"""The most letters of a text from the log: a sample, a name."""
VERDICT_LETTERS, RECIPE_LETTERS = 1000, 50_000
EVAL_ROWS, PICTURE_LETTERS = 60, 2_000_000
PICTURE = re.compile(r"samples/[0-9]+\.png")
"""Names of the pictures of samples: a log is data, and may not name other files."""
CPUS = ("cpu", "x86_64", "amd64", "aarch64", "arm64")
"""Devices on which sums have a fixed order."""


def write_report(folder: Path) -> Path:
    """Write run/report.html and run/report.json of a run, and return the path of the page."""
    with bar("writing the report"):
        run = read_run(folder)
        facts = gather(run)
        path = folder / "run" / "report.html"
        write_text(path.with_suffix(".json"), json.dumps(facts, indent=1, allow_nan=False) + "\n")
        write_text(path, render(run, facts))
    return path


def render(run: History, facts: Mapping[str, Any]) -> str:
    """The HTML page."""
    bad = run.facts.bad_lines
    values = {
        "name": run.name,
        "heading": sections.truncate(facts["name"]),
        "status": facts["status"],
        "about": sections.about(facts),
        "verdict": [sections.truncate(sentence, VERDICT_LETTERS) for sentence in facts["verdict"]],
        "tiles": sections.tiles(facts["numbers"], facts["cost"]),
        "curves": curves(run),
        "samples": sections.samples(facts),
        "evaluations": sections.evaluations(facts),
        "details": sections.details(facts["details"]),
        "data": sections.data(facts),
        "health": sections.health(facts["health"]),
        "cost": sections.cost(facts["cost"], facts["numbers"]["bytes_on_disk"]),
        "suggestions": facts["suggestions"],
        "command": facts["reproduce"]["command"],
        "reproduce": sections.reproduce(facts["reproduce"]),
        "recipe": sections.truncate(to_toml(run.recipe), RECIPE_LETTERS) if run.recipe else "",
        "note": f" {counted(bad, 'lines')} of the log could not be read." if bad else "",
    }
    return render_page("report.html", values)


def gather(run: History) -> dict[str, Any]:
    """The content of the report as JSON values; None where a value is unknown."""
    facts: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "name": run.name,
        "task": run.task,
        "status": run.status,
        "problem": run.problem,
        "started": run.facts.started,
        "verdict": verdict(run),
        "numbers": _numbers(run),
        "evaluations": [
            {k: v for k, v in e.items() if as_float(v) is not None and k != "time"} for e in shown_evals(run)
        ],
        "samples": [
            {"step": as_count(e.get("step")), "text": str(e.get("text", "")), "picture": _picture(run.folder, e)}
            for e in shown_samples(run)
        ],
        "details": read_evaluation(run.folder),
        "data": _data(run),
        "health": asdict(health(run)),
        "cost": _cost(run),
        "suggestions": [asdict(suggestion) for suggestion in suggestions(run)],
        "reproduce": _reproduce(run),
        "recipe": run.recipe,
    }
    return {key: json_value(value) for key, value in facts.items()}


def _numbers(run: History) -> dict[str, Any]:
    facts, best, test = run.facts, run.facts.best_eval or {}, run.last_event("test")
    return {
        "goal": facts.primary_metric,
        "best": as_float(best.get(facts.primary_metric)),
        "best_valid": as_float(best.get("valid")),
        "best_step": as_count(best.get("step")),
        "bits_per_byte": as_float(best.get("bits_per_byte")),
        "test_best": None if facts.primary_metric == "valid" else as_float(test.get(facts.primary_metric)),
        "test_loss": as_float(test.get("test")),
        "test_bits_per_byte": as_float(test.get("bits_per_byte")),
        "train_loss": facts.loss,
        "uniform_guess": uniform_loss(run),
        "parameters": facts.parameters,
        "trained": facts.trained,
        "steps": facts.steps,
        "evaluations": len(run.evals),
        "bytes_on_disk": facts.size,
    }


def _data(run: History) -> dict[str, Any]:
    data = run.last_event("data")
    counts = ("documents", "tokens", "bytes", "vocab", "samples", "valid_tokens", "valid_bytes", "bad_rows")
    return {
        "train": describe_data(run),
        "valid": data_name(run, "valid") or HELD_BACK,
        "fingerprint": data.get("fingerprint"),
        "epochs": Evidence(run).epochs,
        **{name: as_float(data.get(name)) for name in counts},
    }


def _cost(run: History) -> dict[str, Any]:
    facts, end = run.facts, run.last_event("end")
    return {
        "train_seconds": facts.train_seconds,
        "wall_seconds": facts.wall_seconds,
        "tokens": facts.tokens,
        "tokens_per_second": facts.tokens_per_second,
        **{name: as_float(end.get(name)) for name in ("flops", "mfu", "peak_memory")},
    }


def _reproduce(run: History) -> dict[str, Any]:
    known = {name: run.session.get(name) for name in ("version", "torch", "python", "device", "world")}
    text = "the same recipe, versions and machine give the same run"
    if str(known["device"] or "cpu").lower() not in CPUS:
        text += ", except that a GPU sums in a varying order"
    text += "; other hardware or versions round differently, and differences grow in a long run"
    return {"command": COMMAND, "seed": run.recipe.get("seed"), **known, "determinism": text}


def shown_samples(run: History) -> list[Event]:
    """The samples nearest to the start, a quarter, the half and the end of the run."""
    known = [(step, event) for event in run.samples if (step := as_count(event.get("step"))) is not None]
    if not known:
        return run.samples[-1:]
    end = max(run.facts.steps, known[-1][0])
    picked = {min(range(len(known)), key=lambda i: abs(known[i][0] - share * end)) for share in (0, 0.25, 0.5, 1)}
    return [known[i][1] for i in sorted(picked)]


def _picture(folder: Path, event: Event) -> str:
    """The picture of a sample as a data URL; empty if it has none, or if its file is gone."""
    name = event.get("picture")
    if not isinstance(name, str) or not PICTURE.fullmatch(name):
        return ""
    try:
        return f"data:image/png;base64,{base64.b64encode((folder / 'run' / name).read_bytes()).decode()}"
    except OSError:
        return ""


def shown_evals(run: History) -> list[Event]:
    """All evaluations; of many, some at equal distances with the first, the last and the best."""
    if len(run.evals) <= EVAL_ROWS:
        return run.evals
    at = set(np.linspace(0, len(run.evals) - 1, EVAL_ROWS).round().astype(int).tolist())
    return [event for i, event in enumerate(run.evals) if i in at or event is run.facts.best_eval]


def json_value(value: Any) -> Any:
    """A value that JSON can hold: no NaN, no dates of TOML, no very long text."""
    if isinstance(value, Mapping):
        return {str(k)[:TEXT_LETTERS]: json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(v) for v in value]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    picture = isinstance(value, str) and len(value) <= PICTURE_LETTERS and PICTURE_URL.fullmatch(value)
    return value if picture else sections.truncate(value, TEXT_LETTERS)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; an unpaired surrogate becomes a question mark."""
    raw = text.encode("utf-8", "replace")
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    with writing(path.parent, len(raw)):
        try:
            partial.write_bytes(raw)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
