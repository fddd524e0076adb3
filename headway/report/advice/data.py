"""Rules about the data: examples cut, labels unbalanced, rows skipped."""

from __future__ import annotations

from headway.report.advice.evidence import Evidence
from headway.report.advice.suggestion import Suggestion, data_command, train_command
from headway.report.format import count, number, percent
from headway.runs.events import as_count

CUT = 0.1
"""Share of the examples that lost tokens above which that is worth a word: below it, few tokens are lost in all."""
UNEVEN, COMMON = 1.5, 0.4
"""The most common label is so many times as common as an equal share, and has this share of the examples: of many
labels, some are always rare."""
MISSED = 0.15
"""Macro F1 below accuracy by this much: the rare labels are missed."""


def examples_cut(e: Evidence) -> Suggestion | None:
    """Many examples are longer than `data.length`."""
    data = e.run.last_event("data")
    cut = sum(as_count(data.get(name)) or 0 for name in ("cut", "shortened", "left_out"))
    counts = {name: as_count(data.get(name)) or 0 for name in ("documents", "samples", "valid_samples", "left_out")}
    rows = (counts["documents"] or counts["samples"]) + counts["valid_samples"] + counts["left_out"]
    length, wanted = as_count(e.run.setting("data.length")), as_count(data.get("length_99"))
    if not rows or cut < CUT * rows or length is None or wanted is None or wanted <= length:
        return None
    new = min(-(-wanted // 8) * 8, _limit(e) or wanted + 8)
    if new <= length:
        return None
    keeps = "leaves 99 % of them whole" if new >= wanted else "is the most that the model reads"
    return Suggestion(
        advice=f"Read more of each example: data.length={new} {keeps}.",
        reason=f"{count(cut)} of {count(rows)} examples ({percent(cut / rows)}) do not fit: data.length = {length}.",
        command=train_command(e.run, {"data.length": new}),
    )


def labels_unbalanced(e: Evidence) -> Suggestion | None:
    """Rare labels are missed, and the loss gives them no weight."""
    weights, labels = f"{e.run.task}.class_weights", as_count(e.run.last_event("data").get("labels"))
    accuracy, macro, common = e.best("accuracy"), e.best("macro_f1"), e.chance.get("accuracy")
    if e.run.setting(weights) != "none" or None in (accuracy, macro, common) or not labels:
        return None
    assert accuracy is not None and macro is not None and common is not None
    if common < max(UNEVEN / labels, COMMON) or accuracy - macro < MISSED:
        return None
    return Suggestion(
        advice="Give rare labels more weight in the loss.",
        reason=f"The most common of {count(labels)} labels has {percent(common)} of the examples; accuracy is "
        f"{number(accuracy)}, but macro F1, where all labels count alike, is {number(macro)}.",
        command=train_command(e.run, {weights: "balanced"}),
        verdict="it misses rare labels",
    )


def rows_skipped(e: Evidence) -> Suggestion | None:
    """Rows of the data that could not be used."""
    data = e.run.last_event("data")
    if not (bad := as_count(data.get("bad_rows"))):
        return None
    there = as_count(data.get("documents")) or as_count(data.get("samples")) or 0
    return Suggestion(
        advice="Look at the rows that were skipped before you trust the result.",
        reason=f"{count(bad)} rows could not be used, beside {count(there)} that were.",
        command=f"{look} --bad" if (look := data_command(e.run)) else "",
    )


def _limit(e: Evidence) -> int | None:
    """The longest sequence that the pretrained model reads; None for a new model, which gets the length it needs."""
    return as_count(e.run.session.get("max_length")) if e.pretrained else None
