"""Rules about the length of a run: stopped, less than an epoch, still falling."""

from __future__ import annotations

import numpy as np

from headway.report.advice.evidence import Evidence, late_improvement, late_share
from headway.report.advice.suggestion import BUDGETS, Changes, Suggestion, resume_command, train_command
from headway.report.format import count, duration, percent
from headway.runs.events import as_float
from headway.tasks.registry import known_task

STEEP = 0.02
"""A relative fall of the validation loss over the last quarter above which the report calls it falling."""
STRAIGHT = 0.25
"""The share of the whole fall in the last quarter of a curve that does not flatten: longer training pays."""
ONCE = 0.9
"""Epochs below which a part of the data was never seen; the last batch may be left out."""


def stopped(e: Evidence) -> Suggestion | None:
    """A run that can be resumed."""
    if e.run.status != "stopped":
        return None
    share = e.run.steps["share"][-1:]
    part = f", after {percent(float(share[0]))} of its budget" if len(share) and np.isfinite(share[0]) else ""
    return Suggestion(
        advice="Resume it.",
        reason=f"It stopped at step {count(e.steps)}{part}. A resumed run gives the same weights as one that "
        "was never stopped.",
        command=resume_command(e.run),
    )


def less_than_an_epoch(e: Evidence) -> Suggestion | None:
    """A part of the data was never seen, and the loss had not levelled off."""
    gain = late_improvement(e.run)
    if e.run.status != "finished" or e.epochs is None or e.epochs >= ONCE or e.stopped_early:
        return None
    if gain is not None and gain < STEEP:
        return None
    seconds = (e.run.facts.train_seconds or 0.0) / max(e.epochs, 1e-9)
    whole = f" An epoch takes about {duration(seconds)} at this speed." if e.run.facts.train_seconds else ""
    return Suggestion(
        advice="Train on all of the data.",
        reason=f"The run saw {percent(e.epochs)} of its training data.{whole}",
        command=train_command(e.run, {"train.epochs": enough_epochs(e)}),
        verdict=f"it saw only {percent(e.epochs)} of its training data",
    )


def enough_epochs(e: Evidence) -> int:
    """Epochs to suggest instead of less than one: a text teaches something at every token, a label only once."""
    task = known_task(e.run.task)
    return 1 if task is None or task.predicts_tokens else 3


def still_falling(e: Evidence) -> Suggestion | None:
    """The validation loss fell to the end as fast as before."""
    gain, share = late_improvement(e.run), late_share(e)
    if gain is None or share is None or e.run.status != "finished" or gain < STEEP or share < STRAIGHT:
        return None
    return Suggestion(
        advice="Train longer.",
        reason=f"The validation loss fell by {percent(gain)} over the last quarter of the run, as fast as before.",
        command=train_command(e.run, longer(e)),
    )


def longer(e: Evidence, factor: int = 2) -> Changes:
    """The run's budget, times a factor."""
    for name in BUDGETS:
        if budget := as_float(e.run.setting(name)):
            return {name: int(budget * factor) if name == "train.steps" else budget * factor}
    return {"train.steps": max(1, e.steps * factor)}
