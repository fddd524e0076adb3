"""Several runs compared: metrics with intervals over seeds, paired differences, curves, costs. No torch here."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.errors import HeadwayError
from headway.jsonfile import read_json
from headway.runs.events import Series, as_float
from headway.runs.grid import Grid, variant_names
from headway.runs.history import History, read_evaluation
from headway.runs.statistics import METHOD, confidence_interval, holm, kind_of, paired, verdict

NOT_METRICS = ("event", "time", "step")
SLICE_KEYS = ("from", "to", "examples", "kind")
"""Keys of a slice of an evaluation that are not metrics."""
LENGTHS_FILE = "lengths.json"
"""In a run's folder `run`: a language model's perplexity at each length of `lengths=`."""
COSTS = ("parameters", "trained", "steps", "seconds", "flops", "memory")
"""What a run costs, by the names of its columns."""
NO_SETTINGS = ("seed", "out")
"""Keys of a recipe in which all runs differ."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run of a comparison, or the attempt at one."""

    seed: int
    run: History | None = None
    """None: it has no folder."""
    status: str = ""
    """waiting, running, finished, stopped, diverged, failed; empty: that of the run."""
    error: str = ""
    """Why it failed."""
    command: str = ""
    """The command that repeats it."""

    @property
    def state(self) -> str:
        return self.status or (self.run.status if self.run else "waiting")

    @property
    def done(self) -> History | None:
        """The run, if it counts."""
        return self.run if self.run is not None and self.state == "finished" else None


def final_metrics(run: History) -> dict[str, float]:
    """The metrics on the test data; without test data, those of the evaluation whose weights were kept."""
    kept = run.last_event("best").get("step")  # logged by runs that keep their best weights
    best = next((event for event in run.evals if kept is not None and event.get("step") == kept), None)
    event = run.last_event("test") or best or run.facts.last_eval or {}
    return {name: value for name, x in event.items() if name not in NOT_METRICS and (value := as_float(x)) is not None}


def compare(name: str, plan: Grid, trials: Sequence[Sequence[Trial]], terms: Sequence[str] = ()) -> dict[str, Any]:
    """The comparison as JSON values; `trials` holds the runs of each variant, `terms` what made each one equal."""
    names, runs = variant_names(plan), [trial for row in trials for trial in row]
    variants = [
        {"name": each, "terms": term, **_variant(plan, args, row)}
        for each, term, args, row in zip(names, terms or [""] * len(names), plan.variants, trials, strict=True)
    ]
    rising = {e.get("goal"): e.get("rising") is True for t in runs if t.done and (e := t.done.last_event("start"))}
    _add_differences(variants, plan.reference, rising)
    return {
        "format": 2,
        "recipe": name,
        "common": list(plan.common),
        "keys": list(plan.keys),
        "seeds": sorted({trial.seed for trial in runs}),
        "equal": plan.equal,
        "against": names[plan.reference],
        "method": METHOD,
        "primary": next(iter(rising), None),
        "machines": sorted({_machine(run) for trial in runs if (run := trial.done) is not None}),
        "waiting": sum(trial.state == "waiting" for trial in runs),
        "differences": _differences(trials),
        "variants": variants,
    }


def _machine(run: History) -> str:
    """Where a run was trained, and with which versions."""
    about = run.session
    return f"{about.get('device')}, headway {about.get('version')}, torch {about.get('torch')}"


def _variant(plan: Grid, args: Sequence[str], trials: Sequence[Trial]) -> dict[str, Any]:
    done = [(trial.seed, run) for trial in trials if (run := trial.done) is not None]
    runs, metrics = [run for _, run in done], [final_metrics(run) for _, run in done]
    costs = [_costs(run) for run in runs]
    return {
        "settings": list(args),
        "figures": _figures([seed for seed, _ in done], metrics),
        **{name: _mean(cost[name] for cost in costs) for name in COSTS},
        "tokens_per_second": _mean(run.facts.tokens_per_second for run in runs),
        "runs": [_trial(trial) for trial in trials],
        "curves": _curves(runs),
        "slices": _at_lengths(plan.lengths, runs) if plan.lengths else _slices(runs),
    }


def _figures(seeds: Sequence[int], metrics: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Metrics that all runs have, each with its interval."""
    names = dict.fromkeys(name for each in metrics for name in each)
    values = {name: [each[name] for each in metrics] for name in names if all(name in each for each in metrics)}
    return {n: {**confidence_interval(v, kind_of(n, v)), "values": v, "seeds": list(seeds)} for n, v in values.items()}


def _trial(trial: Trial) -> dict[str, Any]:
    found: dict[str, Any] = {"name": trial.run.name if trial.run else None, "seed": trial.seed, "status": trial.state}
    found |= {} if trial.done is None else _costs(trial.done)
    return found | ({"error": trial.error, "command": trial.command} if trial.error else {})


def _costs(run: History) -> dict[str, float | None]:
    end = run.last_event("end")
    return {
        "parameters": run.facts.parameters,
        "trained": run.facts.trained,
        "steps": float(run.facts.steps),
        "seconds": run.facts.train_seconds,
        "flops": as_float(end.get("flops")),
        "memory": as_float(end.get("peak_memory")),
    }


def _add_differences(variants: Sequence[dict[str, Any]], reference: int, rising: Mapping[Any, bool]) -> None:
    """`versus`: of each metric the paired difference to the reference, and a verdict."""
    for variant in variants:
        variant["versus"] = {}
    others = [variant for i, variant in enumerate(variants) if i != reference]
    for name, base in variants[reference]["figures"].items():
        mine = [variant for variant in others if name in variant["figures"]]
        pairs = [paired(_by_seed(variant["figures"][name]), _by_seed(base)) for variant in mine]
        tested = [i for i, pair in enumerate(pairs) if pair is not None and pair.p is not None]
        corrected = dict(zip(tested, holm([pairs[i].p for i in tested]), strict=True))  # type: ignore[union-attr, misc]
        better = rising.get(name, kind_of(name, base["values"]).higher_is_better)
        for i, (variant, pair) in enumerate(zip(mine, pairs, strict=True)):
            told = verdict(pair, corrected.get(i), len(tested), better)
            values = {} if pair is None else {**vars(pair), "p_holm": corrected.get(i)}
            variant["versus"][name] = {**values, "verdict": told}


def _by_seed(figure: Mapping[str, Any]) -> dict[int, float]:
    return dict(zip(figure["seeds"], figure["values"], strict=True))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _differences(trials: Sequence[Sequence[Trial]]) -> dict[str, list[Any]]:
    """The settings in which the variants' recipes differ: key → a value for each variant, None where it has no run."""
    recipes = [next((flat(trial.run.recipe) for trial in row if trial.run), None) for row in trials]
    keys = dict.fromkeys(key for recipe in recipes if recipe for key in recipe)
    found = {key: [None if recipe is None else recipe.get(key) for recipe in recipes] for key in keys}
    known = {key: [v for v, r in zip(each, recipes, strict=True) if r is not None] for key, each in found.items()}
    return {k: v for k, v in found.items() if k not in NO_SETTINGS and any(x != known[k][0] for x in known[k])}


def flat(recipe: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A recipe by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in recipe.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def _curves(runs: Sequence[History]) -> dict[str, list[dict[str, float]]]:
    """Metric → its mean, lowest and highest value at each step that all runs have evaluated, and what it cost by then.

    Of the validation loss and the primary metric; evaluations are few, so that the files stay small.
    """
    names = dict.fromkeys(["valid", *(run.facts.primary_metric for run in runs)])
    return {name: points for name in names if (points := _curve(runs, name))}


def _curve(runs: Sequence[History], name: str) -> list[dict[str, float]]:
    pairs = ([(as_float(event.get("step")), as_float(event.get(name))) for event in run.evals] for run in runs)
    found = [{step: value for step, value in each if step is not None and value is not None} for each in pairs]
    steps = sorted(set(found[0]).intersection(*found[1:])) if found else []
    points = []
    for step in steps:
        values, costs = [each[step] for each in found], [_cost_at(run, step) for run in runs]
        cost = {key: mean for key in costs[0] if (mean := _mean(each.get(key) for each in costs)) is not None}
        points.append({"step": step, **cost, "mean": statistics.fmean(values), "low": min(values), "high": max(values)})
    return points


def _cost_at(run: History, step: float) -> dict[str, float | None]:
    """Tokens, seconds and FLOPs up to a step."""
    at = int(np.searchsorted(run.steps["step"], step, side="right")) - 1
    tokens, seconds = (_value(run.steps[name], at) for name in ("tokens", "seconds"))
    flops, whole = as_float(run.last_event("end").get("flops")), run.facts.tokens
    spent = flops * tokens / whole if flops and whole and tokens is not None else None
    return {"tokens": tokens, "seconds": seconds, "flops": spent}


def _value(column: Series, at: int) -> float | None:
    return as_float(float(column[at])) if 0 <= at < len(column) else None


def _at_lengths(lengths: Sequence[int], runs: Sequence[History]) -> list[dict[str, Any]]:
    """Perplexity at lengths that were asked for, averaged over the runs; those that a model cannot read are absent."""
    tables = [read_lengths(run) for run in runs]
    found = []
    for length in lengths:
        values = [as_float(table.get(str(length))) for table in tables]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            found.append({"from": length, "to": length, "figure": "perplexity", "mean": statistics.fmean(known)})
    return found


def read_lengths(run: History) -> dict[str, Any]:
    """Length → perplexity, or why there is none."""
    try:
        return read_json(run.folder / "run" / LENGTHS_FILE)
    except HeadwayError:
        return {}


def _slices(runs: Sequence[History]) -> list[dict[str, Any]]:
    """The first metric by length, averaged over the runs; slices that not all runs have are left out."""
    found = [details for run in runs if (details := read_evaluation(run.folder)) is not None]
    tables = [_table(each.get("details")) for each in found]
    shared = [key for key in tables[0] if all(key in table for table in tables)] if tables else []
    return [
        {"from": low, "to": high, "figure": metric, "mean": statistics.fmean(t[low, high, metric] for t in tables)}
        for low, high, metric in shared
    ]


def _table(details: Any) -> dict[tuple[float, float, str], float]:
    """(from, to, name of the metric) → value, for one run."""
    rows, table = details.get("slices") if isinstance(details, Mapping) else None, {}
    for row in rows if isinstance(rows, list) else ():
        metrics = {k: as_float(v) for k, v in row.items()} if isinstance(row, Mapping) else {}
        low, high = metrics.get("from"), metrics.get("to")
        first = next(((k, v) for k, v in metrics.items() if k not in SLICE_KEYS and v is not None), None)
        if low is not None and high is not None and first is not None:
            table[low, high, str(first[0])] = first[1]
    return table
