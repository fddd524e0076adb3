"""Rules about the learning rate, read from the curve of the training loss."""

from __future__ import annotations

import numpy as np

from headway.report.advice.evidence import Evidence, clipped_share, late_share
from headway.report.advice.suggestion import Changes, Suggestion, train_command
from headway.report.format import count, number, percent
from headway.runs.events import as_count, as_float

FAR = 10.0
"""A rate so many times the usual one, or that part of it, is the likeliest reason of a bad run."""
LOW = 5.0
"""A usual rate so many times the run's own: worth a try if the loss was still falling in a straight line."""
ROSE = 0.15
"""A training loss that rises by this share of its whole fall is not steady; a third of that, if the rate is far above
the usual one."""
FLAT = 0.05
"""A second half with less than this share of the whole fall is a plateau."""
CLIPPED = 0.9
"""Gradients that are clipped in this share of the steps: alone harmless, on a plateau a sign of a high rate."""
STRAIGHT = 0.25
"""The share of the whole fall in the last quarter of a curve that does not flatten."""


def not_finite(e: Evidence) -> Suggestion | None:
    """A loss or gradient that was not finite."""
    if not (events := e.run.events_of("nan")):
        return None
    first = events[0]
    where = f" ({first['where']})" if first.get("where") else ""
    return Suggestion(
        advice="Lower the learning rate, or lengthen train.warmup.",
        reason=f"The loss or a gradient was not finite at step {count(as_count(first.get('step')))}{where}.",
        command=train_command(e.run, {**_lower(e), **({} if e.run.setting("train.clip") else {"train.clip": 1})}),
        verdict="its numbers were not finite" if e.run.status == "finished" else "",
    )


def rate_too_high(e: Evidence) -> Suggestion | None:
    """The training loss rose again, jumped, or stayed on a plateau with clipped gradients."""
    if (why := _too_high(e)) is None:
        return None
    return Suggestion(
        advice="Lower the learning rate.",
        reason=f"{why} The peak rate was {number(e.rate)}.",
        command=train_command(e.run, _lower(e)),
        verdict="its training loss was not steady",
    )


def rate_too_low(e: Evidence) -> Suggestion | None:
    """The loss falls in a straight line, at a small part of the usual rate."""
    share = late_share(e)
    if e.rate is None or e.usual_rate is None or LOW * e.rate > e.usual_rate or e.run.status != "finished":
        return None
    if share is None or share < 0.6 * STRAIGHT:  # far below the usual rate, less than a straight line is enough
        return None
    return Suggestion(
        advice="Raise the learning rate.",
        reason=f"The validation loss was still falling, with {percent(share)} of its whole fall in the last quarter, "
        f"at a peak rate of {number(e.rate)}; such models usually train with about {number(e.usual_rate)}.",
        command=train_command(e.run, {"train.lr": e.usual_rate}),
    )


def rate_remedy(e: Evidence) -> tuple[str, Changes] | None:
    """Whether the rate is the likeliest reason why a run learned nothing."""
    if e.rate is not None and e.usual_rate is not None:
        whose = "a pretrained model" if e.pretrained else "a model of this size"
        said = f" {number(e.rate)} is far from the usual {number(e.usual_rate)} for {whose}."
        if e.rate < e.usual_rate / FAR:
            return f"Raise the learning rate:{said}", {"train.lr": e.usual_rate}
        if _far_above(e):
            return f"Lower the learning rate:{said}", {"train.lr": e.usual_rate}
    plateau = len(e.blocks) > 0 and not _moves(e)
    return ("Lower the learning rate.", _lower(e)) if _too_high(e) or plateau else None


def _too_high(e: Evidence) -> str | None:
    """What the curve shows of a rate that is too high; None for a steady curve."""
    if len(e.jumps) > 1:
        return f"The loss jumped {len(e.jumps)} times, first at step {count(as_count(e.jumps[0].get('step')))}."
    if len(e.blocks) == 0 or e.first_loss is None:
        return None
    rises = e.blocks - np.minimum.accumulate(e.blocks)
    top, end, share = int(rises.argmax()), float(e.blocks[-1]), ROSE / 3 if _far_above(e) else ROSE
    if rises[top] > max(share * abs(e.first_loss - float(e.blocks.min())), 4 * e.block_noise):
        low = int(e.blocks[:top].argmin())
        first, last = (f"{number(float(e.blocks[i]))} around step {count(_middle(e, i))}" for i in (low, top))
        return f"The training loss rose from {first} to {last}."
    if _far_above(e) and (late_share(e) or 0.0) >= STRAIGHT:
        return "The loss had not settled, at a rate far above the usual one."
    clipped = clipped_share(e.run, after=as_count(e.run.setting("train.warmup")) or 0)
    if clipped is not None and clipped >= CLIPPED and not _moves(e) and end > 0.5 * e.first_loss:
        limit = number(as_float(e.run.setting("train.clip")))
        return (
            f"{percent(clipped)} of the steps had a gradient norm above train.clip = {limit}, and the training loss "
            f"stayed at {number(end)}."
        )
    return None


def _far_above(e: Evidence) -> bool:
    return e.rate is not None and e.usual_rate is not None and e.rate > FAR * e.usual_rate


def _middle(e: Evidence, block: int) -> int:
    return int(e.steps * (block + 0.5) / len(e.blocks))


def _moves(e: Evidence) -> bool:
    """Whether the second half of the run lowered the training loss."""
    middle, end = float(np.mean(e.blocks[4:6])), float(e.blocks[-1])
    return middle - end > max(FLAT * abs((e.first_loss or 0.0) - end), 2 * e.block_noise)


def _lower(e: Evidence) -> Changes:
    rate = e.rate or e.usual_rate or 1e-3
    return {"train.lr": min(rate / 3, e.usual_rate or rate)}
