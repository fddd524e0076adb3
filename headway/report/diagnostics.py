"""What the numbers of a run mean: a verdict in two sentences, and counts of what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from headway.errors import counted
from headway.report.advice.budget import STEEP
from headway.report.advice.evidence import clipped_share, guesser, late_improvement, uniform_loss
from headway.report.advice.fit import overfit
from headway.report.advice.rules import suggestions
from headway.report.format import brief, count, join_words, metric_title, number, percent
from headway.runs.events import as_count, as_float
from headway.runs.history import History
from headway.tasks.registry import known_task


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
    chance = run.last_event("data").get("chance")
    if (guess := uniform_loss(run)) is not None:
        text += f" (a uniform guess: {number(guess)})"
    elif isinstance(chance, dict) and (guess := as_float(chance.get(facts.primary_metric))) is not None:
        text += f" ({guesser(run)}: {number(guess)})"
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
    wrong = [suggestion.verdict for suggestion in suggestions(run) if suggestion.verdict]
    if run.status == "diverged":
        calm = f", after {join_words([*troubles, *restarts])}"
    elif wrong:
        calm = f", but {join_words(wrong)}"
    elif troubles:
        calm = f", with {join_words([*troubles, *restarts])}"
    else:
        calm = " without trouble: no spikes, no NaN, " + (restarts[0] if restarts else "no restarts")
    trend = "" if wrong else _trend(run)
    return f"{state}{calm}{f'; {trend}' if trend else ''}."


def _trend(run: History) -> str:
    if (worse := overfit(run)) is not None:
        return f"the validation loss has been rising since step {count(as_count(worse.get('step')))}"
    if (gain := late_improvement(run)) is None:
        return ""
    if gain >= STEEP:
        return f"the validation loss was still falling, by {percent(gain)} over the last quarter"
    return "the validation loss had levelled off" if gain >= 0 else "the validation loss had stopped falling"
