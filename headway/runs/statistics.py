"""Statistics of a few runs: intervals that stay inside a metric's range, paired differences, verdicts in words.

Runs of a comparison differ in their seed. A metric with bounds gets its t interval on a scale without bounds: the logit
for a share, the logarithm for what is only positive. The standard error goes there by the delta method, so that the
interval holds the arithmetic mean. No torch here.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.05
"""Of differences that are none, the share that may be called one."""
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantile of Student's t distribution with 1, 2, … degrees of freedom."""
Z_QUANTILE = 1.959964
MOST_EXPONENT = 600.0
"""Keeps the bounds of two wildly different values finite."""
METHOD = (
    "Means over the seeds with 95 % confidence intervals by Student's t; those of metrics with bounds are computed on "
    "the logit or logarithmic scale and so stay inside the bounds. Differences are paired by seed; with more "
    "than two variants, a verdict needs p ≤ 0.05 after Holm's correction, for each metric on its own."
)
"""How the numbers were computed, for the page."""


@dataclass(frozen=True)
class Kind:
    """The bounds of a metric, and its direction; None: not known."""

    low: float = -math.inf
    high: float = math.inf
    higher_is_better: bool | None = None


KINDS = (
    (re.compile(r"(^|_)(error|loss|valid|test|perplexity|bits|mse|mae|wer|cer|ter|distance|rate)(_|$)"),
     Kind(0.0, math.inf, False)),
    (re.compile(r"(^|_)(bleu|chrf|rouge)(_|$)"), Kind(0.0, 100.0, True)),
    (re.compile(r"(^|_)(spearman|pearson|correlation|mcc)(_|$)"), Kind(-1.0, 1.0, True)),
    (re.compile(r"(^|_)(accuracy|f1|em|precision|recall|agreement|mrr|auc|iou|ndcg|map)(_|$)"), Kind(0.0, 1.0, True)),
)  # fmt: skip
"""Metrics by a word of their name; the first pattern that is found counts."""


def kind_of(metric: str, values: Sequence[float]) -> Kind:
    """What is known of a metric by its name; its bounds only if all values keep them."""
    found = next((kind for pattern, kind in KINDS if pattern.search(metric.lower())), Kind())
    if all(found.low <= value <= found.high for value in values):
        return found
    return Kind(higher_is_better=found.higher_is_better)


def confidence_interval(values: Sequence[float], kind: Kind = Kind()) -> dict[str, float | None]:  # noqa: B008 — frozen
    """Mean, standard deviation, and a 95 % confidence interval of the mean by Student's t; one value has none."""
    mean, number = statistics.fmean(values), len(values)
    if number < 2:
        return {"mean": mean, "sd": None, "low": None, "high": None}
    sd = statistics.stdev(values)
    half = t_quantile(number - 1) * sd / math.sqrt(number)
    low, high = _bounded(mean, half, kind)
    return {"mean": mean, "sd": sd, "low": low, "high": high}


def _bounded(mean: float, half: float, kind: Kind) -> tuple[float, float]:
    """mean ± half, computed on a scale without bounds if the metric has some."""
    low, high = kind.low, kind.high
    if half == 0 or not math.isfinite(low) or not low < mean < high:
        return mean - half, mean + half
    if not math.isfinite(high):  # the logarithm, whose slope is 1/x
        factor = math.exp(min(half / (mean - low), MOST_EXPONENT))
        return low + (mean - low) / factor, low + (mean - low) * factor
    share = (mean - low) / (high - low)  # the logit, whose slope is 1/(x(1 - x))
    step = min(half / (high - low) / (share * (1 - share)), MOST_EXPONENT)
    odds = share / (1 - share)
    ends = (odds / math.exp(step), odds * math.exp(step))
    first, last = (low + (high - low) * each / (1 + each) for each in ends)
    return first, last


def t_quantile(freedom: int) -> float:
    if freedom <= len(T_QUANTILES):
        return T_QUANTILES[freedom - 1]
    z, n = Z_QUANTILE, float(freedom)  # the expansion for many degrees of freedom
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))


def two_sided_p(t: float, freedom: int) -> float:
    """The probability of a |t| at least as large, by the finite sums for whole degrees of freedom (Abramowitz 26.7)."""
    angle = math.atan2(abs(t), math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    term = cosine if freedom % 2 else 1.0
    total = 0.0
    for k in range(3 if freedom % 2 else 2, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
    return min(1.0, max(0.0, 1 - inside))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values after Holm's step-down correction (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found, worst = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[i]))
        found[i] = worst
    return found


@dataclass(frozen=True)
class Paired:
    """The mean difference of two variants over the seeds that both have, and half of its 95 % interval."""

    difference: float
    half: float | None
    """None: one seed."""
    p: float | None
    seeds: int


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Paired | None:
    """The difference to a reference, seed by seed; None without a common seed."""
    each = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    if not each:
        return None
    mean, number = statistics.fmean(each), len(each)
    if number == 1:
        return Paired(mean, None, None, 1)
    error = statistics.stdev(each) / math.sqrt(number)
    if error == 0:
        return Paired(mean, 0.0, 0.0 if mean else 1.0, number)
    return Paired(mean, t_quantile(number - 1) * error, two_sided_p(mean / error, number - 1), number)


def verdict(found: Paired | None, corrected: float | None, comparisons: int, higher_is_better: bool | None) -> str:
    """What a difference says, in words; `corrected` is its p value among so many comparisons."""
    if found is None:
        return "no seed in common"
    if found.half is None or found.p is None or corrected is None:
        return f"one seed: no interval ({signed(found.difference)})"
    if corrected <= LEVEL:
        return f"{_direction(found.difference, higher_is_better)} by {plus_minus(abs(found.difference), found.half)}"
    told = plus_minus(found.difference, found.half)
    if found.p <= LEVEL:
        return f"not decided: {told} would do alone, not among {comparisons} comparisons"
    return f"no difference at this budget: {told}"


def _direction(difference: float, higher_is_better: bool | None) -> str:
    if higher_is_better is None:
        return "higher" if difference > 0 else "lower"
    return "better" if (difference > 0) is higher_is_better else "worse"


def plus_minus(value: float, half: float) -> str:
    """0.021 ± 0.008: no finer than what is uncertain says, with a second digit of that where the first is small."""
    size = half or abs(value)
    if not size:
        return "0 ± 0"
    first = math.floor(math.log10(size))
    digits = min(6, max(0, (1 if size < 3 * 10.0**first else 0) - first))
    if round(abs(value), digits) == round(half, digits):  # 0.94 ± 0.86 is not 0.9 ± 0.9: the one leaves out zero
        digits = min(6, digits + 1)
    return f"{value:.{digits}f} ± {f'{half:.{digits}f}' if half else 0}"


def signed(value: float) -> str:
    return f"{value:+.3g}"
