"""The values of each section of a report, from `report.gather`; templates/report.html shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headway.report import format as w
from headway.report.charts import Line, Panel, Scale, axis_ticks, view
from headway.report.evaluation import Calibration, Chart, blocks, metrics_table
from headway.runs.events import as_float

Facts = Mapping[str, Any]

TEXT_LETTERS = 300
"""The most letters of a text from the log on the page."""
EVAL_COLUMNS = 8
FEW = 12
"""Points of a curve that are drawn as dots."""
LOOKS = ("train", "valid", "norm", "lr", "rate", "lr second")
"""Looks of the curves of an evaluation, one after the other."""
ON = {"test": "the test data", "valid": "the validation data"}


def about(facts: Facts) -> list[str]:
    """Task, time and device."""
    device = facts["reproduce"]["device"]
    words = [f"task {facts['task']}", w.moment(facts["started"]), f"on {device}" if device else ""]
    return [truncate(word) for word in words if word and word != w.ABSENT]


def tiles(numbers: Facts, cost: Facts) -> list[tuple[str, str, str]]:
    """The most important numbers: title, value, note."""
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
        ("Tokens per second", w.count(cost["tokens_per_second"]), "inside steps"),
        ("Peak memory", w.size(cost["peak_memory"]), ""),
        ("Model FLOPs utilization", w.percent(cost["mfu"]), "of the device's peak"),
    )
    return [tile for tile in found if tile[1] != w.ABSENT]


def _trained(numbers: Facts) -> str:
    part, whole = numbers.get("trained"), numbers["parameters"]
    return f"{w.brief(part)} of them trainable" if part is not None and whole is not None and part < whole else ""


def _bits(value: float | None) -> str:
    return "" if value is None else f"{w.fixed(value)} bits per byte"


def samples(facts: Facts) -> list[tuple[str, str, str]]:
    """Samples during training: step, text, picture."""
    found, end = [], max(facts["numbers"]["steps"], 1)
    for sample in facts["samples"]:
        step = sample["step"]
        when = "Sample" if step is None else f"Step {w.count(step)} ({w.percent(step / end)})"
        text = sample["text"].strip("\n").rstrip() or ("" if sample["picture"] else "(nothing)")
        found.append((when, text, sample["picture"]))
    return found


def evaluations(facts: Facts) -> dict[str, Any]:
    """The metrics of all evaluations, up to EVAL_COLUMNS of them."""
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
    note = f"{w.count(left_out)} of {w.count(whole)} rows are not shown." if left_out > 0 else ""
    return {"head": [truncate(titles.get(k, k.replace("_", " "))) for k in names], "rows": body, "note": note}


def details(found: Any) -> dict[str, Any] | None:
    """The last evaluation in full; None if it has nothing to show."""
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
    for number, part in enumerate(parts):
        if isinstance(part, Calibration):
            values |= _calibration(part)
        elif isinstance(part, Chart):
            values["blocks"][number] = ("Chart", _chart(part, number))
    return values


def _chart(found: Chart, number: int) -> dict[str, Any]:
    """The curves of an evaluation, each in a look of its own."""
    lines = [
        Line(name=name, look=look, x=np.array(x), y=np.array(y), dots=len(y) <= FEW)
        for (name, x, y), look in zip(found.lines, LOOKS, strict=False)
    ]
    places = [place for line in lines for place in (line.x[0], line.x[-1])]
    x_scale = Scale(float(min(places)), float(max(places)) if max(places) > min(places) else float(min(places)) + 1)
    panel = Panel(
        key=f"evaluation-{number}", title=found.title, describe=f"{found.title}, by {found.axis}", lines=lines,
        log=found.log, tall=True,
    )  # fmt: skip
    return {"panel": view(panel, x_scale, []), "ticks": axis_ticks(x_scale), "axis": found.axis}


def _calibration(found: Calibration) -> dict[str, Any]:
    """The calibration curve; on the dotted line, accuracy equals confidence."""
    sure, right = (np.array([row[i] for row in found.bins], dtype=np.float64) for i in (0, 1))
    ends, x_scale = np.array([0.0, 1.0]), Scale(0.0, 1.0)
    panel = Panel(
        key="calibration",
        title="Accuracy by confidence",
        describe="Accuracy by confidence; on the dotted line, both are equal.",
        lines=[
            Line(name="accuracy", look="valid", x=sure, y=right),
            Line(name="confidence", look="limit", x=ends, y=ends),
        ],
        tall=True,
    )
    error = "" if found.error is None else w.fixed(found.error)
    return {"calibration": view(panel, x_scale, []), "axis": axis_ticks(x_scale), "error": error}


def data(facts: Facts) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The training data and the validation data."""
    known = facts["data"]
    left = (
        ("trained on", known["train"]),
        ("documents", w.count(known["documents"])),
        ("tokens", w.count(known["tokens"])),
        ("bytes", w.count(known["bytes"])),
        ("epochs", w.brief(known["epochs"])),
        ("rows skipped", w.count(known["bad_rows"])),
    )
    right = (
        ("validated on", known["valid"]),
        ("tokens", w.count(known["valid_tokens"])),
        ("bytes", w.count(known["valid_bytes"])),
        ("vocabulary", w.count(known["vocab"])),
        ("samples per epoch", w.count(known["samples"])),
        ("fingerprint", known["fingerprint"]),
    )
    return _known(left), _known(right)


def health(found: Facts) -> list[tuple[str, str]]:
    """Counts of what went wrong."""
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
    """Time, FLOPs, memory and disk."""
    return _known(
        (
            ("time in steps", w.duration(spent["train_seconds"])),
            ("total time", w.duration(spent["wall_seconds"])),
            ("tokens", w.count(spent["tokens"])),
            ("training FLOPs", w.number(spent["flops"])),
            ("model FLOPs utilization", w.percent(spent["mfu"])),
            ("peak memory", w.size(spent["peak_memory"])),
            ("on disk", w.size(on_disk)),
        )
    )


def reproduce(known: Facts) -> list[tuple[str, str]]:
    """Seed, versions and device."""
    return _known(
        (
            ("seed", known["seed"]),
            ("versions", versions(known) or "not recorded"),
            ("device", known["device"] or "not recorded"),
            ("processes", known["world"]),
            ("determinism", known["determinism"]),
        )
    )


def versions(known: Facts) -> str:
    names = (("version", "headway"), ("torch", "torch"), ("python", "Python"))
    return ", ".join(f"{name} {known[key]}" for key, name in names if known[key])


def _known(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Pairs whose value is known, as text."""
    return [(name, truncate(value)) for name, value in pairs if value is not None and value not in ("", w.ABSENT)]


def truncate(text: Any, letters: int = TEXT_LETTERS) -> str:
    """The beginning of a text."""
    whole = str(text)
    return whole if len(whole) <= letters else whole[:letters] + "…"
