"""One label for each example of any kind: rows with labels, their numbers, and metrics of logits. N examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.datasets.labeled import Labeled, label_set, parse_labels, with_known_labels
from headway.data.files.rows import BadRows
from headway.data.media.listing import columns_there
from headway.errors import DataError, counted
from headway.tasks.classification.evaluate import ClassificationResults
from headway.tasks.classification.predict import Prediction
from headway.tasks.losses.labels import loss_from_logits
from headway.tasks.metrics.chance import constant_logits
from headway.tasks.metrics.classification import Numbers

L = TypeVar("L", bound=Labeled)


@dataclass
class LabelReader:
    """Keeps rows with labels: those of the first rows, the training data, are all that there are."""

    noun: str
    """What has a label: images, sounds."""
    bad: BadRows
    column: str = ""
    labels: list[str] = field(default_factory=list)

    def __call__(self, rows: Sequence[L]) -> list[L]:
        if rows and all(row.label is None for row in rows):
            message = f"{rows[0].file or 'the data'}: the {self.noun} have no labels"
            hint = "one folder for each class, or a column of labels (data.label=COLUMN)"
            raise DataError("D004", message, f"{hint}{columns_there(rows[0].file, rows[0].line)}")
        named = parse_labels(rows, "single", self.bad, self.column)
        if not self.labels:
            self.labels.extend(label_set(named, "single"))
            if len(self.labels) < 2:
                what = counted(len(named), self.noun)
                message = f"nothing to tell apart: all of the {what} are {self.labels[0]!r}"
                raise DataError("D002", message, "one folder for each class, or a column of labels (data.label)")
        return with_known_labels(named, self.labels, "single", self.bad)


def label_numbers(rows: Sequence[Labeled], labels: Sequence[str]) -> Index:
    """(N,): the place of each example's label among the labels."""
    place = {name: i for i, name in enumerate(labels)}
    return np.array([place[row.label] for row in rows], dtype=np.int64)


def results_of(logits: Numbers, rows: Sequence[Labeled], labels: tuple[str, ...]) -> ClassificationResults:
    return ClassificationResults("single", labels, label_numbers(rows, labels).astype(np.float64), logits)


def loss_and_metrics(
    logits: Numbers, rows: Sequence[Labeled], labels: tuple[str, ...]
) -> tuple[float, dict[str, float]]:
    """The mean cross entropy, and the metrics."""
    truth = torch.from_numpy(label_numbers(rows, labels))
    loss = float(loss_from_logits("single", torch.from_numpy(logits).float(), truth)) / len(truth)
    return loss, results_of(logits, rows, labels).metrics()


def chance(rows: Sequence[Labeled], labels: tuple[str, ...]) -> dict[str, float]:
    """The same of the best guess that ignores its input, in one."""
    logits = np.tile(constant_logits("single", label_numbers(rows, labels), len(labels)), (len(rows), 1))
    loss, metrics = loss_and_metrics(logits, rows, labels)
    return {"valid": loss, **metrics}


def mixed_loss(logits: Tensor, labels: Tensor, share: Tensor, label_smoothing: float) -> Tensor:
    """Summed over B mixtures: `labels` (2B,) are of the first examples and then of the second ones, `share` (B,)."""
    first, second = (
        F.cross_entropy(logits, y, reduction="none", label_smoothing=label_smoothing) for y in labels.chunk(2)
    )
    return (share * first + (1 - share) * second).sum()


def right_of(found: Sequence[Prediction], rows: Sequence[Labeled]) -> str:
    """Predictions beside the labels of their rows, for a person to read."""
    pairs = [(guess, row.label) for guess, row in zip(found, rows, strict=True)]
    said = ", ".join(
        f"{guess.label} ({guess.probability:.2f}){'' if guess.label == label else f' for {label}'}"
        for guess, label in pairs
    )
    return f"{sum(guess.label == label for guess, label in pairs)} of {len(pairs)} right: {said}"
