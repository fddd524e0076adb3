"""Rules about training and validation: overfitting, too few data, a best evaluation long before the end."""

from __future__ import annotations

from headway.report.advice.evidence import Evidence, validation_losses
from headway.report.advice.suggestion import Changes, Suggestion, train_command
from headway.report.format import brief, count, metric_title, number
from headway.runs.events import Event, as_count, as_float, smooth
from headway.runs.history import History
from headway.tasks.registry import known_task

RISE = 0.03
"""A relative rise of the validation loss over its best above which the run counts as overfitting: less is noise."""
PER_TOKEN, PER_EXAMPLE = 60.0, 300.0
"""Parameters of a new model for each token, or each labelled example, above which the data are too few for it.
The recipes of headway have at most 40 and 140."""
APART = 2.0
"""Validation and training loss are apart if one is so many times the other."""
EARLY, VERY_EARLY = 1 / 3, 1 / 4
"""A best evaluation within this part of the run is early; the second, if the run keeps the best weights and has lost
nothing but time."""


def data_too_small(e: Evidence) -> Suggestion | None:
    """A new model with so many parameters that it learns its few examples by heart."""
    task, data, size = known_task(e.run.task), e.run.last_event("data"), e.run.facts.parameters
    by_token = task is not None and task.predicts_tokens
    amount = as_float(data.get("tokens" if by_token else "samples"))
    valid = as_float((e.run.facts.last_eval or {}).get("valid"))
    if e.pretrained or not amount or size is None or e.last_loss is None or valid is None:
        return None
    limit = PER_TOKEN if by_token else PER_EXAMPLE
    if size < limit * amount or valid < APART * e.last_loss or _solved(e):
        return None
    if not (_worse_since_best(e) or e.guessing):
        return None
    what = "training tokens" if by_token else "training examples"
    return Suggestion(
        advice="Start from a pretrained model (model.from), find more data, or train a smaller model.",
        reason=f"{brief(size)} parameters learn from {count(amount)} {what}: at the end, the training loss is "
        f"{number(e.last_loss)} and the validation loss {number(valid)}.",
        command=train_command(e.run, _smaller(e)),
        verdict="it learned its training data by heart",
    )


def overfitting(e: Evidence) -> Suggestion | None:
    """The saved weights are worse than those of an earlier evaluation."""
    best = overfit(e.run)
    if best is None or e.keeps_best or not _worse_since_best(e):
        return None
    step, loss, end = count(as_count(best.get("step"))), number(as_float(best.get("valid"))), validation_losses(e.run)
    again = f" The training took {brief(e.epochs)} epochs." if e.epochs is not None and e.epochs >= 2 else ""
    more_dropout = {} if e.pretrained else {"model.dropout": _dropout(e)}
    return Suggestion(
        advice="Keep the best weights" + ("" if e.pretrained else " and use more dropout") + ", or find more data.",
        reason=f"Validation loss rose from {loss} at step {step} to {number(end[-1][1])} at step {count(end[-1][0])} "
        f"while the training loss kept falling.{again}",
        command=train_command(e.run, {**_keep_best(e), **more_dropout}),
        verdict=f"the validation loss has been rising since step {step}",
    )


def best_early(e: Evidence) -> Suggestion | None:
    """The best evaluation came in the first third, and the rest of the run made it worse."""
    best = e.run.facts.best_eval or {}
    step, value = as_count(best.get("step")), e.best(e.metric)
    if step is None or value is None or e.run.status != "finished" or e.stopped_early:
        return None
    if step > (VERY_EARLY if e.keeps_best else EARLY) * e.steps or len(e.run.evals) < 4 or not _worse_since_best(e):
        return None
    better: tuple[str, Changes] = ("Stop after the best evaluation.", {"train.patience": 3})
    if not e.keeps_best:
        better = ("Keep the best weights.", _keep_best(e))
    last = number(as_float((e.run.facts.last_eval or {}).get(e.metric)))
    return Suggestion(
        advice=better[0],
        reason=f"The best {metric_title(e.metric)}, {number(value)}, came at step {count(step)} of {count(e.steps)}; "
        f"the last is {last}.",
        command=train_command(e.run, better[1]),
        verdict="" if e.keeps_best else "its last weights are worse than earlier ones",
    )


def overfit(run: History) -> Event | None:
    """The evaluation with the lowest loss, if the validation loss rose afterwards while the training loss fell."""
    best, losses = run.facts.lowest_eval, validation_losses(run)
    step = as_count(best.get("step")) if best else None
    if best is None or step is None or len(losses) < 3:
        return None
    lowest = float(best["valid"])
    if losses[-1][1] < lowest + RISE * abs(lowest):
        return None
    curve, steps = smooth(run.steps["loss"]), run.steps["step"]
    then = curve[steps <= step][-1:]
    return best if len(then) and len(curve) and curve[-1] < then[0] else None


def _worse_since_best(e: Evidence) -> bool:
    """Whether the last evaluation is worse than the best one by more than chance."""
    best, last = e.best(e.metric), as_float((e.run.facts.last_eval or {}).get(e.metric))
    if best is None or last is None:
        return False
    if not e.higher_is_better:
        return last > best + RISE * abs(best)
    return abs(best - last) > e.noise(best)  # the best is the best: the difference can only be a loss


def _solved(e: Evidence) -> bool:
    """Whether the best score leaves nothing to learn: a loss near zero says little then."""
    best = e.best(e.metric)
    return e.higher_is_better and best is not None and 0.95 <= best <= 1.0


def _keep_best(e: Evidence) -> Changes:
    without_average = {"train.average": 0} if e.run.setting("train.average") else {}
    return {"train.keep_best": True, **without_average}


def _dropout(e: Evidence) -> float:
    return min(0.5, max(0.1, 2 * (as_float(e.run.setting("model.dropout")) or 0.0)))


def _smaller(e: Evidence) -> Changes:
    """Half of the depth and of the width; the width stays a multiple of the heads."""
    depth = as_count(e.run.setting("model.depth")) or 4
    width = as_count(e.run.setting("model.width")) or 64 * depth
    heads = as_count(e.run.setting("model.heads")) or 1
    half = max(16, width // 2)
    return {"model.depth": max(1, depth // 2), "model.width": max(2 * heads, half - half % (2 * heads))}
