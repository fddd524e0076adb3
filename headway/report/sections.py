"""The values of a report's sections, each from the facts `report.gather` found; templates/report.html shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headway.report import format as w
from headway.report.charts import Line, Panel, Scale, axis_ticks, view
from headway.report.evaluation import Calibration, blocks, metrics_table
from headway.runs.events import as_float

Facts = Mapping[str, Any]

TEXT_LETTERS = 300
"""Of a text of the log that the page shows."""
EVAL_COLUMNS = 8
ON = {"test": "the test data", "valid": "the validation data"}


def about(facts: Facts) -> list[str]:
    """Task, time and device."""
    device = facts["reproduce"]["device"]
    words = [f"task {facts['task']}", w.moment(facts["started"]), f"on {device}" if device else ""]
    return [truncate(word) for word in words if word and word != w.ABSENT]


def tiles(numbers: Facts, cost: Facts) -> list[tuple[str, str, str]]:
    """The numbers that people look for first: name, value, note."""
    step, goal, by_loss = numbers["best_step"], w.metric_title(numbers["goal"]), numbers["goal"] == "valid"
    found = (
        (f"Best {goal}", w.fixed(numbers["best"]), "" if step is None else f"at step {w.count(step)}"),
        ("Validation loss", w.ABSENT if by_loss else w.fixed(numbers["best_valid"]), "at the same step"),
        ("Bits per byte", w.fixed(numbers["bits_per_byte"]), "at the same step"),
        (f"Test {goal}", w.fixed(numbers["test_best"]), ""),
        ("Test loss", w.fixed(numbers["test_loss"]), _bits(numbers["test_bits_per_byte"])),
        ("Training loss", w.fixed(numbers["train_loss"]), "smoothed, at the end"),
        ("Parameters", w.brief(numbers["parameters"]), _trained(numbers)),
        ("Steps", w.count(numbers["steps"]), ""),
        ("Tokens", w.brief(cost["tokens"]), ""),
        ("Time", w.duration(cost["wall_seconds"]), ""),
        ("Tokens a second", w.count(cost["tokens_per_second"]), "inside steps"),
        ("Peak memory", w.size(cost["peak_memory"]), ""),
        ("Model FLOPs used", w.percent(cost["mfu"]), "of what the device can do"),
    )
    return [tile for tile in found if tile[1] != w.ABSENT]


def _trained(numbers: Facts) -> str:
    part, whole = numbers.get("trained"), numbers["parameters"]
    return f"{w.brief(part)} of them trained" if part is not None and whole is not None and part < whole else ""


def _bits(value: float | None) -> str:
    return "" if value is None else f"{w.fixed(value)} bits per byte"


def samples(facts: Facts) -> list[tuple[str, str]]:
    """What the model wrote on its way, and when."""
    found, end = [], max(facts["numbers"]["steps"], 1)
    for sample in facts["samples"]:
        step = sample["step"]
        when = "Sample" if step is None else f"Step {w.count(step)} ({w.percent(step / end)})"
        found.append((when, sample["text"].strip("\n").rstrip() or "(nothing)"))
    return found


def evaluations(facts: Facts) -> dict[str, Any]:
    """Every number of every evaluation, or of as many as fit."""
    rows: Sequence[Facts] = facts["evaluations"]
    first = [k for k in ("valid", "bits_per_byte", "perplexity", "accuracy") if any(k in row for row in rows)]
    others = [k for k in dict.fromkeys(k for row in rows for k in row) if k not in (*first, "step")]
    names = [*first, *others][:EVAL_COLUMNS]
    titles = {"valid": "validation loss", "bits_per_byte": "bits per byte"}
    best, whole = facts["numbers"]["best_step"], facts["numbers"]["evaluations"]
    body = [
        (
            w.count(as_float(row.get("step"))),
            [w.fixed(as_float(row.get(name))) for name in names],
            best is not None and row.get("step") == best,
        )
        for row in rows
    ]
    left_out = whole - len(rows)
    note = f"{w.count(left_out)} of {w.count(whole)} rows are left out." if left_out > 0 else ""
    return {"head": [truncate(titles.get(k, k.replace("_", " "))) for k in names], "rows": body, "note": note}


def details(found: Any) -> dict[str, Any] | None:
    """The last evaluation in full; None where nothing of it can be shown."""
    if not isinstance(found, Mapping):
        return None
    metrics, parts = metrics_table(found.get("figures")), blocks(found.get("details"))
    if metrics is None and not parts:
        return None
    on = ON.get(str(found.get("data")), "the data")
    values: dict[str, Any] = {
        "title": f"On {on}: {w.count(as_float(found.get('examples')))} examples",
        "metrics": metrics,
        "blocks": [(type(part).__name__, part) for part in parts],
    }
    for part in parts:
        if isinstance(part, Calibration):
            values |= _calibration(part)
    return values


def _calibration(found: Calibration) -> dict[str, Any]:
    """On the dotted line, confidence is what it says."""
    sure, right = (np.array([row[i] for row in found.bins], dtype=np.float64) for i in (0, 1))
    ends, x_scale = np.array([0.0, 1.0]), Scale(0.0, 1.0)
    panel = Panel(
        key="calibration",
        title="Is it as right as it is sure?",
        describe="Share of right answers by confidence; the dotted line is where both agree.",
        lines=[
            Line(name="share that is right", look="valid", x=sure, y=right),
            Line(name="confidence", look="limit", x=ends, y=ends),
        ],
        tall=True,
    )
    error = "" if found.error is None else w.fixed(found.error)
    return {"calibration": view(panel, x_scale, []), "axis": axis_ticks(x_scale), "error": error}


def data(facts: Facts) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What was read, for training and for validation."""
    known = facts["data"]
    left = (
        ("trained on", known["train"]),
        ("documents", w.count(known["documents"])),
        ("tokens", w.count(known["tokens"])),
        ("bytes", w.count(known["bytes"])),
        ("read", "" if known["epochs"] is None else f"{w.brief(known['epochs'])} times"),
        ("rows left out", w.count(known["bad_rows"])),
    )
    right = (
        ("validated on", known["valid"]),
        ("tokens", w.count(known["valid_tokens"])),
        ("bytes", w.count(known["valid_bytes"])),
        ("vocabulary", w.count(known["vocab"])),
        ("samples an epoch", w.count(known["samples"])),
        ("fingerprint", known["fingerprint"]),
    )
    return _known(left), _known(right)


def health(found: Facts) -> list[tuple[str, str]]:
    """What went wrong."""
    nans = f"{found['nans']} ({found['skipped']} skipped, {found['rewinds']} rewound)" if found["nans"] else "0"
    return _known(
        (
            ("spikes", w.count(found["spikes"])),
            ("NaN", nans),
            ("clipped steps", w.percent(found["clipped"])),
            ("restarts", w.count(found["restarts"])),
            ("sinks dropped", ", ".join(found["sinks"])),
        )
    )


def cost(spent: Facts, on_disk: float | None) -> list[tuple[str, str]]:
    """What it took."""
    return _known(
        (
            ("time in steps", w.duration(spent["train_seconds"])),
            ("time in all", w.duration(spent["wall_seconds"])),
            ("tokens", w.count(spent["tokens"])),
            ("training FLOPs", w.number(spent["flops"])),
            ("model FLOPs used", w.percent(spent["mfu"])),
            ("peak memory", w.size(spent["peak_memory"])),
            ("on disk", w.size(on_disk)),
        )
    )


def reproduce(known: Facts) -> list[tuple[str, str]]:
    """What it ran on."""
    names = (("version", "headway"), ("torch", "torch"), ("python", "Python"))
    versions = ", ".join(f"{name} {known[key]}" for key, name in names if known[key])
    return _known(
        (
            ("seed", known["seed"]),
            ("versions", versions or "not recorded"),
            ("device", known["device"] or "not recorded"),
            ("processes", known["world"]),
            ("determinism", known["determinism"]),
        )
    )


def _known(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Facts by name; those that are not known are left out."""
    return [(name, truncate(value)) for name, value in pairs if value is not None and value not in ("", w.ABSENT)]


def truncate(text: Any, letters: int = TEXT_LETTERS) -> str:
    """The beginning of a text that may be long."""
    whole = str(text)
    return whole if len(whole) <= letters else whole[:letters] + "…"
