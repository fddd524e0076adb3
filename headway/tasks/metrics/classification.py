"""How good predictions are: agreement of labels, of sets of labels, of numbers; and whether confidence is deserved.

Letters: N examples, L labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Counts = NDArray[np.int64]

BINS = 10
"""Stretches of confidence that calibration is looked at in."""


def confusion(truth: Counts, guess: Counts, labels: int) -> Counts:
    """(L, L): how often a label, the row, was taken for another, the column."""
    pairs = np.bincount(truth * labels + guess, minlength=labels * labels)
    return pairs.reshape(labels, labels)


def hits(matrix: Counts) -> Counts:
    """(3, L) of a confusion matrix: for each label how often it was found, wrongly given, and missed."""
    right = matrix.diagonal()
    return np.stack([right, matrix.sum(0) - right, matrix.sum(1) - right])


def set_hits(truth: NDArray[np.bool_], guess: NDArray[np.bool_]) -> Counts:
    """(3, L) of sets of labels (N, L): found, wrongly given, missed."""
    return np.stack([(truth & guess).sum(0), (~truth & guess).sum(0), (truth & ~guess).sum(0)])


def accuracy(matrix: Counts) -> float:
    return float(np.trace(matrix) / max(1, matrix.sum()))


def f1(found: Counts) -> Numbers:
    """Of each label, from (3, L) or (3,) hits; NaN for one that neither was there nor was given."""
    right, wrong, missed = found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        result: Numbers = 2 * right / (2 * right + wrong + missed)
    return result


def macro_f1(found: Counts) -> float:
    """The mean over labels; one that neither was there nor was given has no say."""
    each = f1(found)
    known = each[~np.isnan(each)]
    return float(known.mean()) if len(known) else 0.0


def micro_f1(found: Counts) -> float:
    """Over all decisions, whichever label they are about."""
    value = float(f1(found.sum(1)))
    return 0.0 if np.isnan(value) else value


def matthews(matrix: Counts) -> float:
    """Correlation of guesses and truth, for any number of labels (Gorodkin 2004); 0 where one of them never varies."""
    total, right = float(matrix.sum()), float(np.trace(matrix))
    given, there = matrix.sum(0).astype(np.float64), matrix.sum(1).astype(np.float64)
    spread = (total**2 - given @ given) * (total**2 - there @ there)
    return float((right * total - given @ there) / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(a: Numbers, b: Numbers) -> float:
    """0 where one of them never varies."""
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else 0.0


def ranks(values: Numbers) -> Numbers:
    """From 1 on; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    mean: Numbers = (last - (count - 1) / 2)[place]
    return mean


def spearman(a: Numbers, b: Numbers) -> float:
    return pearson(ranks(a), ranks(b))


def calibration(confidence: Numbers, right: Numbers, bins: int = BINS) -> dict[str, Any]:
    """Confidence and share of right guesses, stretch by stretch, and the expected gap of the two (Guo et al. 2017)."""
    where = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    rows, gap = [], 0.0
    for i in range(bins):
        here = where == i
        if not here.any():
            continue
        sure, true = float(confidence[here].mean()), float(right[here].mean())
        gap += abs(sure - true) * float(here.mean())
        rows.append(
            {"low": i / bins, "high": (i + 1) / bins, "examples": int(here.sum()), "confidence": sure, "right": true}
        )
    return {"error": gap, "bins": rows}
