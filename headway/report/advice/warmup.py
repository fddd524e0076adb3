"""Rule about the warm-up: a run that ends before its learning rate has been at the peak."""

from __future__ import annotations

from headway.report.advice.budget import ONCE, enough_epochs
from headway.report.advice.evidence import Evidence
from headway.report.advice.suggestion import Changes, Suggestion, train_command
from headway.report.format import count
from headway.runs.events import as_count

LONG_WARMUP = 0.5
"""A warm-up of this share of the steps leaves too little time at the full rate; a tenth is usual."""


def still_warming_up(e: Evidence) -> Suggestion | None:
    """The warm-up took most of the run."""
    if not long_warmup(e):
        return None
    warmup = as_count(e.run.setting("train.warmup")) or 0
    advice, changes = shorter_warmup(e)
    return Suggestion(
        advice=advice,
        reason=f"The learning rate rises for train.warmup = {count(warmup)} steps, and the run has {count(e.steps)}.",
        command=train_command(e.run, changes),
        verdict="its learning rate was still rising" if warmup >= e.steps else "most of it was warm-up",
    )


def long_warmup(e: Evidence) -> bool:
    warmup = as_count(e.run.setting("train.warmup")) or 0
    return e.run.status == "finished" and not e.stopped_early and warmup >= max(1.0, LONG_WARMUP * e.steps)


def shorter_warmup(e: Evidence) -> tuple[str, Changes]:
    """A tenth of the steps; of more steps, if the run has not seen its data once."""
    steps, changes, advice = float(e.steps), dict[str, int](), "Shorten the warm-up."
    if e.epochs is not None and 0 < e.epochs < ONCE:
        changes, advice = {"train.epochs": enough_epochs(e)}, "Train on all of the data."
        steps *= changes["train.epochs"] / e.epochs
    warmup = as_count(e.run.setting("train.warmup")) or 0
    return advice, {**changes, **({"train.warmup": int(steps) // 10} if warmup >= LONG_WARMUP * steps else {})}
