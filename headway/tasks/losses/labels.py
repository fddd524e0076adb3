"""Losses of a text's labels: one, several, or a number; smoothed, weighted, and for two passes that should agree.

Letters: B texts of a batch, L labels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.tasks import ClassifyConfig
from headway.data.datasets.labeled import Kind
from headway.model.model import Model
from headway.tasks.backbone import read_batch
from headway.tasks.losses.tokens import disagreement, widened


def label_scores(model: Model, ids: Tensor, keep: Tensor, segments: Tensor) -> Tensor:
    """(B, L) in float32."""
    output = read_batch(model, ids, keep, segments)
    scores: Tensor = model.classify(output.hidden, output.keep)
    return widened(scores)


def score_loss(
    kind: Kind, scores: Tensor, targets: Tensor, weights: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Summed over texts; `weights` are of the labels (L,). Divided by `loss_count` it is the mean as torch defines it:
    weights of classes count for the share that smoothing spreads, too."""
    if kind == "regression":
        return F.mse_loss(scores[:, 0], targets, reduction="sum")
    if kind == "multi":  # the mean over labels, or a text of many labels would count for more than one
        losses = F.binary_cross_entropy_with_logits(scores, targets, pos_weight=weights, reduction="none")
        return losses.mean(1).sum()
    return F.cross_entropy(scores, targets, weight=weights, reduction="sum", label_smoothing=smoothing)


def loss_count(kind: Kind, targets: Tensor, weights: Tensor | None) -> float:
    """What the summed loss of a batch is divided by: its texts, or the weights of their classes.

    A sum over parts of a batch: accumulated, the loss is that of torch on the whole batch.
    """
    return len(targets) if weights is None or kind != "single" else float(weights.double()[targets].sum())


def label_loss(kind: Kind, settings: ClassifyConfig) -> Callable[..., Tensor]:
    """Of a model and a batch's tensors: the sum over its texts, see `loss_count`."""
    smoothing, rdrop = settings.smoothing, settings.rdrop

    def once(
        model: Model, ids: Tensor, keep: Tensor, segments: Tensor, targets: Tensor, weights: Tensor | None
    ) -> Tensor:
        return score_loss(kind, label_scores(model, ids, keep, segments), targets, weights, smoothing)

    def twice(
        model: Model, ids: Tensor, keep: Tensor, segments: Tensor, targets: Tensor, weights: Tensor | None
    ) -> Tensor:
        """All texts side by side with themselves: dropout is another one for each row."""
        doubled = (torch.cat([t, t]) for t in (ids, keep, segments))
        first, second = label_scores(model, *doubled).chunk(2)
        both = (score_loss(kind, scores, targets, weights, smoothing) for scores in (first, second))
        apart = disagreement(first.log_softmax(-1), second.log_softmax(-1))
        if weights is not None:  # a mean like the other, over texts that count as much
            apart = apart * weights[targets]
        return sum(both) / 2 + rdrop * apart.sum()

    return twice if rdrop else once
