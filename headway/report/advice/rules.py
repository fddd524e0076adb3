"""The list of all rules, the most important first, and the suggestions that they give for a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from headway.report.advice import budget, collapse, data, fit, machine, rate, result, warmup
from headway.report.advice.evidence import Evidence
from headway.report.advice.suggestion import Suggestion
from headway.runs.history import History

MOST = 3
"""Suggestions that are printed at the end of a run; the report shows all."""


class Rule(NamedTuple):
    """What to look for, and which other subjects say the same once it is found."""

    check: Callable[[Evidence], Suggestion | None]
    subject: str
    explains: frozenset[str] = frozenset()
    finished: bool = True
    """Whether the run must have come to its end: before, its curves may still change."""


EVERYTHING = frozenset({"result", "rate", "budget", "fit", "labels"})
RULES = (
    Rule(budget.stopped, "budget", EVERYTHING, finished=False),
    Rule(rate.not_finite, "rate", EVERYTHING, finished=False),
    Rule(collapse.collapsed, "result", EVERYTHING),
    Rule(result.one_class, "result", EVERYTHING),
    Rule(result.nothing_learned, "result", EVERYTHING),
    Rule(rate.rate_too_high, "rate", frozenset({"rate", "fit", "budget"})),
    Rule(fit.data_too_small, "fit", frozenset({"result", "fit", "budget"})),
    Rule(result.at_chance, "result", EVERYTHING),
    Rule(fit.overfitting, "fit", frozenset({"fit", "budget"})),
    Rule(fit.best_early, "fit", frozenset({"fit", "budget"})),
    Rule(data.labels_unbalanced, "labels"),
    Rule(warmup.still_warming_up, "budget", frozenset({"rate", "budget"})),
    Rule(budget.less_than_an_epoch, "budget", frozenset({"rate", "budget"})),
    Rule(rate.rate_too_low, "rate", frozenset({"budget"})),
    Rule(budget.still_falling, "budget"),
    Rule(data.examples_cut, "length", finished=False),
    Rule(data.rows_skipped, "rows", finished=False),
    Rule(machine.slowed_down, "machine", finished=False),
)
"""Of rules that explain the same fact, the first one speaks: a run that learned nothing is not told to train longer."""


def suggestions(run: History) -> list[Suggestion]:
    """What to try next, the most important first."""
    found: list[Suggestion] = []
    explained: set[str] = set()
    evidence = Evidence(run)
    for rule in RULES:
        if rule.subject in explained or (rule.finished and run.status != "finished"):
            continue
        if (suggestion := rule.check(evidence)) is None:
            continue
        found.append(replace(suggestion, name=rule.check.__name__))
        explained |= rule.explains
    return found
