"""What the numbers of a run mean: a verdict in two sentences, problems, and suggestions with reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.errors import counted
from headway.report.format import brief, count, join_words, metric_title, number, percent
from headway.runs.events import Event, Series, as_count, as_float, smooth
from headway.runs.history import History
from headway.tasks.registry import known_task

STEEP = 0.02
"""A relative fall of the validation loss over the last quarter above which longer training is suggested."""
RISE = 0.01
"""A relative rise of the validation loss over the best above which the run counts as overfitting."""
CLIPPED = 0.5
"""Share of steps with clipped gradients, after the warm-up, above which a suggestion is made."""
SLOWER = 0.7
"""Throughput at the end, relative to the median, below which the machine was slowed down."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Counts of what went wrong in a run."""

    spikes: int
    nans: int
    skipped: int
    rewinds: int
    restarts: int
    clipped: float | None
    """Share of steps whose gradient was clipped to `train.clip`; None without clipping."""
    bad_rows: int
    bad_lines: int
    sinks: tuple[str, ...]
    """Log sinks that failed, each with its reason."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Something to try, and why."""

    advice: str
    reason: str


def health(run: History) -> Health:
    nans = run.events_of("nan")
    actions = [event.get("action") for event in nans]
    return Health(
        spikes=len(run.events_of("spike")),
        nans=len(nans),
        skipped=actions.count("skip"),
        rewinds=actions.count("rewind"),
        restarts=max(run.sessions - 1, 0),
        clipped=clipped_share(run, after=0),
        bad_rows=as_count(run.last_event("data").get("bad_rows")) or 0,
        bad_lines=run.facts.bad_lines,
        sinks=tuple(f"{event.get('name')} ({event.get('problem')})" for event in run.events_of("sink")),
    )


def clipped_share(run: History, after: int) -> float | None:
    """Share of the steps later than `after` whose gradient norm exceeded `train.clip`."""
    limit, norms = as_float(run.setting("train.clip")), run.steps["grad_norm"]
    norms = norms[(run.steps["step"] > after) & np.isfinite(norms)]
    return float(np.mean(norms > limit)) if limit and len(norms) else None


def throughput(run: History) -> Series:
    """Tokens per second of each step; NaN if the clock did not advance."""
    tokens, seconds = run.steps["tokens"], run.steps["seconds"]
    more, time = np.diff(tokens, prepend=0.0), np.diff(seconds, prepend=0.0)
    return np.divide(more, time, out=np.full_like(tokens, np.nan), where=time > 0)


def data_name(run: History, part: str = "train") -> str:
    """The data's name in the log or the recipe; empty for headway's own data, and for a held-out part."""
    return str(run.last_event("data").get(part) or run.setting(f"data.{part}") or "")


def describe_data(run: History) -> str:
    """The name of the training data, for a sentence."""
    if name := data_name(run):
        return name
    if not run.recipe:
        return "unknown data"
    task = known_task(run.task)
    return "made-up data" if task is None else task.made_up


def describe_model(run: History) -> str:
    """A language model of 834k parameters."""
    task = known_task(run.task)
    kind = f"{run.task} model" if task is None else task.noun
    article = "An" if kind[0] in "aeiou" else "A"
    size = run.facts.parameters
    return f"{article} {kind} of {brief(size)} parameters" if size is not None else f"{article} {kind}"


def uniform_loss(run: History) -> float | None:
    """The loss of a uniform distribution over the vocabulary; None if the task does not predict tokens."""
    vocab = as_float(run.last_event("data").get("vocab"))
    task = known_task(run.task)
    predicts = task is not None and task.predicts_tokens
    return math.log(vocab) if vocab and vocab > 1 and predicts else None


def verdict(run: History) -> tuple[str, str]:
    """What was trained and how good it is; and how the training went."""
    return summary(run, describe_data(run)), _outcome(run)


def summary(run: History, data: str) -> str:
    """One sentence: the model, its data, the steps, the best metric."""
    facts = run.facts
    text = f"{describe_model(run)}, trained on {data} for {counted(facts.steps, 'steps')}"
    text += f" ({brief(facts.tokens)} tokens)" if facts.tokens is not None else ""
    if (best := facts.best_eval) is None:
        return text + "; it was not evaluated."
    text += f"; its best {metric_title(facts.primary_metric)} is {number(as_float(best.get(facts.primary_metric)))}"
    if facts.primary_metric != "valid" and (loss := as_float(best.get("valid"))) is not None:
        text += f" (validation loss {number(loss)})"
    if (bits := as_float(best.get("bits_per_byte"))) is not None:
        text += f" ({number(bits)} bits per byte)"
    if (step := as_count(best.get("step"))) is not None:
        text += f", at step {count(step)}"
    if (guess := uniform_loss(run)) is not None:
        text += f" (a uniform guess: {number(guess)})"
    return text + "."


def _outcome(run: History) -> str:
    if run.status == "broken":
        return f"Its folder is damaged: {run.problem}."
    state = {
        "running": "It is still training",
        "finished": "It finished",
        "stopped": "It was stopped before the end",
        "diverged": "It diverged: a loss, gradient or weight was not finite",
    }[run.status]
    if not run.facts.steps:
        return f"{state}; its log has no step."
    found = health(run)
    troubles = [counted(n, words) for n, words in ((found.spikes, "spikes"), (found.nans, "NaNs")) if n]
    restarts = [counted(found.restarts, "restarts")] if found.restarts else []
    if run.status == "diverged":
        calm = f", after {join_words([*troubles, *restarts])}"
    elif troubles:
        calm = f", with {join_words([*troubles, *restarts])}"
    else:
        calm = " without trouble: no spikes, no NaN, " + (restarts[0] if restarts else "no restarts")
    trend = _trend(run)
    return f"{state}{calm}{f'; {trend}' if trend else ''}."


def _trend(run: History) -> str:
    if (worse := overfit(run)) is not None:
        return f"the validation loss has been rising since step {count(as_count(worse.get('step')))}"
    if (gain := late_improvement(run)) is None:
        return ""
    if gain >= STEEP:
        return f"the validation loss was still falling, by {percent(gain)} over the last quarter"
    return "the validation loss had levelled off" if gain >= 0 else "the validation loss had stopped falling"


def validation_losses(run: History) -> list[tuple[int, float]]:
    """(step, validation loss) of each evaluation that has both."""
    pairs = ((as_count(e.get("step")), as_float(e.get("valid"))) for e in run.evals)
    return sorted((step, loss) for step, loss in pairs if step is not None and loss is not None)


def late_improvement(run: History) -> float | None:
    """The relative fall of the validation loss over the last quarter of the steps; None if unknown."""
    losses = validation_losses(run)
    if len(losses) < 3:
        return None
    end, last = losses[-1]
    before = [loss for step, loss in losses[:-1] if step <= 0.75 * end] or [losses[0][1]]
    return (before[-1] - last) / abs(before[-1]) if before[-1] else None


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


def suggestions(run: History) -> list[Suggestion]:
    """What to try next, the most important first."""
    found = [_go_on(run), _nan(run), _overfitting(run), _longer(run), _clipping(run), _spiking(run)]
    found += [_unevaluated(run), _slowing(run), _rows(run)]
    return [suggestion for suggestion in found if suggestion is not None]


def _go_on(run: History) -> Suggestion | None:
    if run.status != "stopped":
        return None
    share = run.steps["share"][-1:]
    part = f", after {percent(float(share[0]))} of its budget" if len(share) and np.isfinite(share[0]) else ""
    return Suggestion(
        advice=f"Resume it: headway train --resume {run.folder}",
        reason=f"It stopped at step {count(run.facts.steps)}{part}. A resumed run gives the same weights as one that "
        "was never stopped.",
    )


def _nan(run: History) -> Suggestion | None:
    if not (events := run.events_of("nan")):
        return None
    first = events[0]
    where = f" ({first['where']})" if first.get("where") else ""
    return Suggestion(
        advice=f"Lower the learning rate{_halved(run)} or lengthen train.warmup.",
        reason=f"The loss or a gradient was not finite at step {count(as_count(first.get('step')))}{where}.",
    )


def _overfitting(run: History) -> Suggestion | None:
    if (best := overfit(run)) is None:
        return None
    end = validation_losses(run)[-1]
    step, loss = count(as_count(best.get("step"))), number(as_float(best.get("valid")))
    dropout = max(0.1, 2 * (as_float(run.setting("model.dropout")) or 0.0))
    epochs = epochs_seen(run)
    again = f" The training took {brief(epochs)} epochs." if epochs is not None and epochs >= 2 else ""
    return Suggestion(
        advice=f"Train for fewer epochs (about {step} steps), with more dropout (model.dropout={min(dropout, 0.5):g}), "
        "or on more data.",
        reason=f"Validation loss rose from {loss} at step {step} to {number(end[1])} at step {count(end[0])} "
        f"while the training loss kept falling.{again}",
    )


def _longer(run: History) -> Suggestion | None:
    gain = late_improvement(run)
    if gain is None or gain < STEEP or run.status != "finished" or overfit(run) is not None:
        return None
    return Suggestion(
        advice=f"Train longer{_doubled(run)}.",
        reason=f"Validation loss fell by {percent(gain)} over the last quarter of the run and had not levelled off.",
    )


def _clipping(run: History) -> Suggestion | None:
    warmup = as_count(run.setting("train.warmup")) or 0
    share = clipped_share(run, after=warmup)
    if share is None or share < CLIPPED:
        return None
    return Suggestion(
        advice=f"Lower the learning rate{_halved(run)}, or raise train.clip if the curve is smooth.",
        reason=f"{percent(share)} of the steps after the warm-up had a gradient norm above "
        f"train.clip = {number(as_float(run.setting('train.clip')))}.",
    )


def _spiking(run: History) -> Suggestion | None:
    spikes = run.events_of("spike")
    if len(spikes) < 2 or run.events_of("nan"):
        return None
    return Suggestion(
        advice=f"Lower the learning rate{_halved(run)}, or look at the data around the spikes.",
        reason=f"The loss jumped {len(spikes)} times, first at step {count(as_count(spikes[0].get('step')))}.",
    )


def _unevaluated(run: History) -> Suggestion | None:
    if run.evals or run.status in ("broken", "running"):
        return None
    return Suggestion(
        advice="Evaluate more often: a smaller train.eval_every.",
        reason=f"There was no evaluation within {counted(run.facts.steps, 'steps')}.",
    )


def _slowing(run: History) -> Suggestion | None:
    rates = throughput(run)
    rates = rates[np.isfinite(rates)]
    if len(rates) < 100:
        return None
    usual, end = float(np.median(rates)), float(np.median(rates[-len(rates) // 10 :]))
    if end >= SLOWER * usual:
        return None
    return Suggestion(
        advice="Check what else the machine was doing, and its temperature.",
        reason=f"Throughput was {count(end)} tokens/s at the end and {count(usual)} in the middle.",
    )


def _rows(run: History) -> Suggestion | None:
    data = run.last_event("data")
    if not (bad := as_count(data.get("bad_rows"))):
        return None
    return Suggestion(
        advice="Look at the rows that were skipped before you trust the result.",
        reason=f"{count(bad)} of {count(as_float(data.get('documents')))} rows could not be used.",
    )


def epochs_seen(run: History) -> float | None:
    """The number of epochs."""
    there = as_float(run.last_event("data").get("tokens"))
    return run.facts.tokens / there if there and run.facts.tokens is not None else None


def _halved(run: History) -> str:
    rate: Any = as_float(run.setting("train.lr"))
    if rate is None:
        seen = run.steps["lr"][np.isfinite(run.steps["lr"])]
        rate = float(seen.max()) if len(seen) else None
    return f" (train.lr={rate / 2:.3g})" if rate else ""


def _doubled(run: History) -> str:
    for name in ("steps", "minutes", "epochs"):
        if budget := as_float(run.setting(f"train.{name}")):
            return f" (train.{name}={2 * budget:g})" if budget < 5e5 else f" (twice the train.{name})"
    return ""
