"""Several runs of one recipe compared: settings varied, metrics, confidence intervals over seeds. No torch here.

The standard deviation is that of runs that differ in their seed only; the interval is a 95 % confidence interval of
their mean.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import ConfigError, UsageError
from headway.runs.events import as_float
from headway.runs.history import History, read_evaluation

PATH_KEYS = ("data.train", "data.valid", "data.test")
"""Settings in which a comma separates files, not values to compare."""
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantile of Student's t distribution with 1, 2, … degrees of freedom."""
Z_QUANTILE = 1.959964
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
NOT_METRICS = ("event", "time", "step")
SLICE_KEYS = ("from", "to", "examples", "kind")
"""Keys of a slice of an evaluation that are not metrics."""


@dataclass(frozen=True)
class Grid:
    """The variants to compare."""

    common: tuple[str, ...]
    """Settings that all runs share."""
    keys: tuple[str, ...]
    """The settings that are varied."""
    variants: tuple[tuple[str, ...], ...]
    """`key=value` settings of each variant; the first setting changes slowest."""
    seeds: tuple[int, ...] | None
    """None: `count` seeds, starting with the recipe's own."""
    count: int = 1
    together: bool = False
    """All varied settings change together."""

    def seeds_from(self, first: int) -> tuple[int, ...]:
        return self.seeds or tuple(range(first, first + self.count))


def grid(args: Sequence[str]) -> Grid:
    """Parse settings: `key=a,b` is varied, `seeds=` is a count or a list, all others are common.

    Settings that change together are joined by +: `model.kind+model.attention=lstm+none,lstm+dot`.
    """
    common, varied, seeds, count = [], [], None, 1
    for arg in args:
        key, equals, raw = arg.partition("=")
        values = [raw] if key in PATH_KEYS else split_values(raw)
        if key == "seeds":
            count, seeds = _seeds(arg, values)
        elif equals and len(values) > 1:
            varied.append([_joined(key, value) for value in values])
        else:
            common.append(arg)
    variants = tuple(tuple(itertools.chain(*each)) for each in itertools.product(*varied))
    if len(variants) < 2 and not (seeds or count > 1):
        raise UsageError(
            "U001",
            "nothing to compare: no setting has two values",
            "try: headway compare tiny model.norm=layernorm,dyt",
        )
    keys = tuple(arg.partition("=")[0] for each in varied for arg in each[0])
    if doubled := sorted({key for key in keys if keys.count(key) > 1}):
        raise UsageError("U001", f"{doubled[0]} is varied twice")
    return Grid(tuple(common), keys, variants, seeds, count, len(varied) == 1 and len(keys) > 1)


def _joined(key: str, value: str) -> list[str]:
    """`key=value` for each of the settings that change together."""
    keys = key.split("+")
    values = value.split("+") if len(keys) > 1 else [value]
    if len(keys) != len(values):
        raise UsageError("U001", f"{key} are {len(keys)} settings, {value} has {len(values)} values")
    return [f"{k}={v}" for k, v in zip(keys, values, strict=True)]


def split_values(raw: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in raw:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return parts


def _seeds(arg: str, values: list[str]) -> tuple[int, tuple[int, ...] | None]:
    if not all(re.fullmatch(r"\d{1,9}", value) for value in values) or len(set(values)) < len(values):
        raise ConfigError("C003", f"{arg} should be a number of seeds, or a list of different seeds")
    if len(values) > 1:
        return len(values), tuple(int(value) for value in values)
    if not 1 <= int(values[0]) <= 1000:
        raise ConfigError("C003", f"{arg} should be from 1 to 1000")
    return int(values[0]), None


def confidence_interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, standard deviation, and a 95 % confidence interval of the mean by Student's t; one value has none."""
    mean, number = statistics.fmean(values), len(values)
    if number < 2:
        return {"mean": mean, "sd": None, "low": None, "high": None}
    sd = statistics.stdev(values)
    half = t_quantile(number - 1) * sd / math.sqrt(number)
    return {"mean": mean, "sd": sd, "low": mean - half, "high": mean + half}


def t_quantile(freedom: int) -> float:
    if freedom <= len(T_QUANTILES):
        return T_QUANTILES[freedom - 1]
    z, n = Z_QUANTILE, float(freedom)  # the expansion for many degrees of freedom
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))


def final_metrics(run: History) -> dict[str, float]:
    """The metrics on the test data; without test data, those of the evaluation whose weights were kept."""
    kept = run.last_event("best").get("step")  # logged by runs that keep their best weights
    best = next((event for event in run.evals if kept is not None and event.get("step") == kept), None)
    event = run.last_event("test") or best or run.facts.last_eval or {}
    return {name: value for name, x in event.items() if name not in NOT_METRICS and (value := as_float(x)) is not None}


def compare(name: str, plan: Grid, runs: Sequence[Sequence[History]]) -> dict[str, Any]:
    """The comparison as JSON values; `runs` holds the runs of each variant."""
    seeds = sorted({int(run.recipe.get("seed", 0)) for row in runs for run in row})
    variants = [
        {"name": name, **_variant(args, row)}
        for name, args, row in zip(variant_names(plan), plan.variants, runs, strict=True)
    ]
    varied = {"common": list(plan.common), "keys": list(plan.keys), "seeds": seeds}
    return {"format": 1, "recipe": name, **varied, "variants": variants}


def variant_names(plan: Grid) -> list[str]:
    """A name for each variant: its values. Where settings change together, a number gets its setting's name, unless it
    is the same as in the first variant."""
    names = []
    for args in plan.variants:
        shown = []
        for arg, usual in zip(args, plan.variants[0], strict=True):
            key, _, value = arg.partition("=")
            if not plan.together or not NUMBER.fullmatch(value):
                shown.append(value)
            elif arg != usual or args == plan.variants[0]:
                shown.append(f"{key.rpartition('.')[2]}={value}")
        names.append(" ".join(shown) or "all")
    return names


def _variant(args: Sequence[str], runs: Sequence[History]) -> dict[str, Any]:
    done = [run for run in runs if run.status == "finished"]
    metrics = [final_metrics(run) for run in done]
    names = dict.fromkeys(name for each in metrics for name in each)
    shared = [name for name in names if all(name in each for each in metrics)]
    return {
        "settings": list(args),
        "figures": {n: {**confidence_interval(v), "values": v} for n in shared if (v := [each[n] for each in metrics])},
        "parameters": _mean(run.facts.parameters for run in done),
        "trained": _mean(run.facts.trained for run in done),
        "seconds": _mean(run.facts.train_seconds for run in done),
        "tokens_per_second": _mean(run.facts.tokens_per_second for run in done),
        "runs": [{"name": run.name, "seed": run.recipe.get("seed"), "status": run.status} for run in runs],
        "curve": _curve(done),
        "slices": _slices([details for run in done if (details := read_evaluation(run.folder)) is not None]),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _curve(runs: Sequence[History]) -> list[list[float]]:
    """(step, mean validation loss) at the steps that all runs have."""
    pairs = ([(as_float(e.get("step")), as_float(e.get("valid"))) for e in run.evals] for run in runs)
    found = [{step: loss for step, loss in each if step is not None and loss is not None} for each in pairs]
    steps = set(found[0]).intersection(*found[1:]) if found else set()
    return [[step, statistics.fmean(each[step] for each in found)] for step in sorted(steps)]


def _slices(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first metric by length, averaged over the runs; slices that not all runs have are left out."""
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
