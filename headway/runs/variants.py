"""Any runs compared: those that differ in their seed alone are one variant. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headway.runs.compare import NO_SETTINGS, Trial, compare, final_metrics, flat
from headway.runs.grid import Grid
from headway.runs.history import History

NAMED_BY = 3
"""Settings that a variant may be called by."""
LETTERS = 60


def variants(runs: Sequence[History]) -> dict[str, list[History]]:
    """Name → runs. A variant of several runs is called by the settings that make it another one, a run by its name."""
    found: dict[str, list[History]] = {}
    for run in runs:
        found.setdefault(_recipe_key(run), []).append(run)
    groups = list(found.values())
    settings = [flat(group[0].recipe) for group in groups]
    keys = [key for key in dict.fromkeys(key for each in settings for key in each) if key not in NO_SETTINGS]
    differing = [key for key in keys if any(each.get(key) != settings[0].get(key) for each in settings)]
    named: dict[str, list[History]] = {}
    for group, each in zip(groups, settings, strict=True):
        words = " ".join(f"{key.rpartition('.')[2]}={_word(each.get(key))}" for key in differing)
        label = words[:LETTERS] if len(group) > 1 and 0 < len(differing) <= NAMED_BY else group[0].name
        names = (label, *(f"{label} ({number})" for number in range(2, len(groups) + 2)))
        named[next(name for name in names if name not in named)] = group
    return named


def compare_runs(runs: Sequence[History], baseline: str = "") -> dict[str, Any]:
    """The facts of a comparison, as `headway compare` has them; every run that was evaluated counts."""
    groups = variants(runs)
    names = sorted(groups, key=lambda name: name != baseline)  # the first one is the reference
    plan = Grid((), ("run",), tuple((f"run={name}",) for name in names))
    trials = [[_trial(run, i) for i, run in enumerate(groups[name])] for name in names]
    found = compare("runs", plan, trials)
    for variant, name in zip(found["variants"], names, strict=True):
        variant["name"] = name
    return {**found, "against": names[0]}


def _trial(run: History, place: int) -> Trial:
    seed = run.recipe.get("seed")
    number = seed if isinstance(seed, int) else place
    return Trial(seed=number, run=run, status="finished" if final_metrics(run) else run.status)


def _recipe_key(run: History) -> str:
    """The same for runs that differ in their seed and place alone; a run without a recipe is like no other."""
    settings = {key: value for key, value in flat(run.recipe).items() if key not in NO_SETTINGS}
    return json.dumps(settings, sort_keys=True, default=str) if settings else str(run.folder)


def _word(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
