"""What a classifier's scores are worth: figures with intervals, who is taken for whom, calibration, worst, slices.

Letters: N examples, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import Kind, Labeled
from headway.data.datasets.raw import printable
from headway.tasks.metrics import classification as metrics
from headway.tasks.metrics.bootstrap import DRAWS, Evaluation, Interval
from headway.tasks.metrics.classification import Counts, Numbers
from headway.tasks.metrics.slices import by_size

METRICS: dict[Kind, tuple[str, ...]] = {
    "single": ("accuracy", "macro_f1", "matthews"),
    "multi": ("micro_f1", "macro_f1", "exact"),
    "regression": ("spearman", "pearson", "mse"),
}
"""By kind of labels; the first is the one to compare by."""
SHOWN_LABELS = 30
"""Labels up to which the whole confusion matrix is worth showing."""
WORST, LETTERS = 20, 300


@dataclass(frozen=True)
class ClassificationResults:
    """Scores of a model (N, L) beside the truth: the place of a label (N,), marks of them (N, L), or a number (N,)."""

    kind: Kind
    labels: tuple[str, ...]
    truth: Numbers
    logits: Numbers

    @property
    def probabilities(self) -> Numbers:
        """(N, L); the scores themselves where numbers are predicted."""
        return probabilities(self.kind, self.logits)

    def metrics(self, rows: Index | slice = slice(None)) -> dict[str, float]:
        """On some of the examples."""
        truth, logits = self.truth[rows], self.logits[rows]
        if self.kind == "single":
            values = _agreement(metrics.confusion(truth.astype(np.int64), logits.argmax(1), len(self.labels)))
        elif self.kind == "multi":
            there, given = truth > 0, logits > 0
            found = metrics.set_hits(there, given)
            exact = float((there == given).all(1).mean())
            values = (metrics.micro_f1(found), metrics.macro_f1(found), exact)
        else:
            guess = logits[:, 0]
            gap = float(np.square(truth - guess).mean())
            values = (metrics.spearman(truth, guess), metrics.pearson(truth, guess), gap)
        return dict(zip(METRICS[self.kind], values, strict=True))

    def each(self) -> Numbers:
        """How good each guess is, more being better: right or wrong, agreement of two sets, minus the squared error."""
        if self.kind == "single":
            return np.asarray(self.logits.argmax(1) == self.truth, dtype=np.float64)
        if self.kind == "multi":
            there, given = self.truth > 0, self.logits > 0
            both, all_ = (there & given).sum(1), there.sum(1) + given.sum(1)
            return np.where(all_ == 0, 1.0, 2 * both / np.maximum(all_, 1))
        return np.asarray(-np.square(self.truth - self.logits[:, 0]))

    def guess(self, row: int) -> Any:
        """A label, a list of them, or a number."""
        if self.kind == "single":
            return self.labels[int(self.logits[row].argmax())]
        if self.kind == "multi":
            return [name for name, score in zip(self.labels, self.logits[row], strict=True) if score > 0]
        return float(self.logits[row, 0])


def _agreement(matrix: Counts) -> tuple[float, float, float]:
    return metrics.accuracy(matrix), metrics.macro_f1(metrics.hits(matrix)), metrics.matthews(matrix)


def intervals(results: ClassificationResults, seed: int = 0) -> dict[str, Interval]:
    """All figures, each with its bootstrap interval.

    Examples drawn again with one label each fill the cells of the confusion matrix by a multinomial law: it is drawn
    from at once, whatever the number of examples.
    """
    count, generator = len(results.truth), np.random.default_rng(seed)
    if results.kind == "single":
        matrix = _matrix(results)
        cells = generator.multinomial(count, (matrix / count).ravel(), DRAWS)
        drawn = [list(_agreement(one.reshape(matrix.shape))) for one in cells]
    else:
        drawn = [list(results.metrics(generator.integers(0, count, count)).values()) for _ in range(DRAWS)]
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    values = results.metrics()
    return {name: (value, float(low[i]), float(high[i])) for i, (name, value) in enumerate(values.items())}


def probabilities(kind: Kind, logits: Numbers) -> Numbers:
    if kind == "single":
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -700, 700)))) if kind == "multi" else logits


def evaluation(
    results: ClassificationResults, rows: Sequence[Labeled], lengths: Index | None, facts: dict[str, Any]
) -> Evaluation:
    """All there is to say; `lengths` are in tokens, if they differ, and `facts` are put before the other details."""
    details: dict[str, Any] = {"kind": results.kind, **facts}
    if results.kind != "regression":
        details |= {"labels": _labels(results), "calibration": _calibration(results)}
    if results.kind == "single":
        details |= _confusion(results)
    if lengths is not None:
        details["slices"] = by_size(lengths.tolist(), results.metrics)
    details["worst"] = _worst(results, rows)
    return Evaluation(len(rows), intervals(results), details, _each(results, rows))


def _labels(results: ClassificationResults) -> list[dict[str, Any]]:
    """Precision, recall and F1 of each label, and how often it is there."""
    right, wrong, missed = found = _hits(results)
    f1 = np.nan_to_num(metrics.f1(found))
    return [
        {
            "label": name,
            "examples": int(right[i] + missed[i]),
            "precision": float(right[i] / max(1, right[i] + wrong[i])),
            "recall": float(right[i] / max(1, right[i] + missed[i])),
            "f1": float(f1[i]),
        }
        for i, name in enumerate(results.labels)
    ]


def _hits(results: ClassificationResults) -> Counts:
    if results.kind == "multi":
        return metrics.set_hits(results.truth > 0, results.logits > 0)
    return metrics.hits(_matrix(results))


def _matrix(results: ClassificationResults) -> Counts:
    return metrics.confusion(results.truth.astype(np.int64), results.logits.argmax(1), len(results.labels))


def _confusion(results: ClassificationResults) -> dict[str, Any]:
    """The whole matrix where there are few labels, and the pairs that are mixed up most."""
    matrix, labels = _matrix(results), results.labels
    off = matrix - np.diag(matrix.diagonal())
    order = np.argsort(-off, axis=None, kind="stable")[:10]
    pairs = [divmod(int(place), len(labels)) for place in order]
    mixed = [{"label": labels[a], "taken_for": labels[b], "times": int(off[a, b])} for a, b in pairs if off[a, b]]
    if len(labels) > SHOWN_LABELS:
        return {"mixed_up": mixed}
    return {"confusion": {"labels": list(labels), "counts": matrix.tolist()}, "mixed_up": mixed}


def _calibration(results: ClassificationResults) -> dict[str, Any]:
    """Of the label given; with several labels, of every yes and no."""
    sure = results.probabilities
    if results.kind == "single":
        return metrics.calibration(sure.max(1), results.each())
    right = ((results.truth > 0) == (results.logits > 0)).astype(np.float64)
    return metrics.calibration(np.maximum(sure, 1 - sure).ravel(), right.ravel())


def _worst(results: ClassificationResults, rows: Sequence[Labeled]) -> list[dict[str, Any]]:
    """The surest mistakes, or the largest errors."""
    each, sure = results.each(), results.probabilities
    if results.kind == "single":
        badness = sure.max(1)
    elif results.kind == "multi":
        badness = np.abs((results.truth > 0) - sure).max(1)
    else:
        badness = -each
    order = [int(i) for i in np.argsort(-badness, kind="stable") if each[i] < 1][:WORST]
    return [
        {
            "example": i,
            "line": rows[i].line,
            "file": rows[i].file,
            "text": shortened(rows[i]),
            "label": _plain(rows[i].label),
            "predicted": results.guess(i),
            "probability": None if results.kind == "regression" else float(badness[i]),
        }
        for i in order
    ]


def shortened(row: Labeled) -> str:
    """The beginning of what was read, on one line."""
    text = printable(" ".join(row.shown.split()))
    return text if len(text) <= LETTERS else text[:LETTERS] + "…"


def said_of(label: Any) -> str:
    """A label, several or a number, for a person to read."""
    if isinstance(label, float):
        return f"{label:.3f}"
    return (", ".join(label) or "none") if isinstance(label, list | tuple) else str(label)


def _plain(label: Any) -> Any:
    return list(label) if isinstance(label, tuple) else label


def _each(results: ClassificationResults, rows: Sequence[Labeled]) -> list[dict[str, Any]]:
    score, sure = results.each(), results.probabilities
    return [
        {
            "file": row.file,
            "line": row.line,
            "label": _plain(row.label),
            "predicted": results.guess(i),
            "score": float(score[i]),
            **({} if results.kind == "regression" else {"probabilities": _named(results.labels, sure[i])}),
        }
        for i, row in enumerate(rows)
    ]


def _named(labels: Sequence[str], values: Numbers) -> dict[str, float]:
    return {name: round(float(value), 6) for name, value in zip(labels, values, strict=True)}
