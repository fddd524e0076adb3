"""Features of images: the class token's vector, and how good k-NN and a linear probe are with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import ImageRow
from headway.model.model import Model, evaluating
from headway.tasks.losses.tokens import upcast
from headway.tasks.metrics.bootstrap import Evaluation, Interval, mean_interval
from headway.tasks.metrics.features import nearest_labels, probe_labels, spread
from headway.tasks.vision.data import Images, evaluation_batches, prepared


def class_vectors(model: Model, images: Tensor) -> Tensor:
    """(B, width) in float32, of normalised images."""
    return upcast(model(images).hidden[:, 0])


def features(model: Model, images: Images, preprocess: Preprocess) -> Tensor:
    """(N, width) of stored images, on the model's device."""
    device = next(model.parameters()).device
    norm, found = torch.tensor(preprocess.normalisation, device=device), []
    with evaluating(model):
        for rows in evaluation_batches(len(images)):
            found.append(class_vectors(model, prepared(images.pixels(rows).to(device), preprocess, norm)))
    return torch.cat(found)


def label_numbers(rows: Sequence[ImageRow], labels: Sequence[str]) -> Tensor:
    """The place of each row's label among the labels of training; -1 for one that is not there."""
    place = {name: number for number, name in enumerate(labels)}
    return torch.tensor([place.get(str(row.label), -1) for row in rows])


@dataclass(frozen=True)
class Scores:
    """Which held-out images get their label from features, by each method."""

    right: dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]
    """Method → (N,)"""
    spread: float

    @property
    def metrics(self) -> dict[str, float]:
        return {**{name: float(right.mean()) for name, right in self.right.items()}, "spread": self.spread}

    def evaluation(self, bad: int = 0) -> Evaluation:
        """With intervals; without labels, only how far apart the features point."""
        metrics: dict[str, Interval] = {name: mean_interval(right) for name, right in self.right.items()}
        count = len(next(iter(self.right.values()), ()))
        return Evaluation(count, {**metrics, "spread": (self.spread,) * 3}, {"bad_rows": bad})


def score_features(
    model: Model, train: Images, held: Images, preprocess: Preprocess, labels: Sequence[str], neighbours: int
) -> Scores:
    """Label held-out images by the labels of training images; without labels, look only at how features spread."""
    theirs = features(model, held, preprocess)
    if not labels:
        return Scores({}, spread(theirs))
    ours = features(model, train, preprocess)
    known, truth = (label_numbers(some.rows, labels).to(ours.device) for some in (train, held))
    with torch.autocast(ours.device.type, enabled=False):
        found = {
            "knn": nearest_labels(ours, known, theirs, neighbours, len(labels)),
            "probe": probe_labels(ours, known, theirs, len(labels)),
        }
    return Scores({name: (guess == truth).cpu().numpy() for name, guess in found.items()}, spread(theirs))
