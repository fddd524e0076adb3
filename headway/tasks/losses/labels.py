"""Losses of a text's labels: one, several, or a number; smoothed, weighted, and for two passes that should agree.

Letters: B texts of a batch, L labels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.datasets.labeled import Kind
from headway.model.model import Model
from headway.tasks.backbone import run_backbone
from headway.tasks.classification.task import Settings
from headway.tasks.losses.tokens import symmetric_kl, upcast


def label_logits(model: Model, ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
    """(B, L) in float32."""
    output = run_backbone(model, ids, attention_mask, token_type_ids)
    logits: Tensor = model.classify(output.hidden, output.attention_mask)
    return upcast(logits)


def loss_from_logits(
    kind: Kind, logits: Tensor, targets: Tensor, weights: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Summed over texts; `weights` are of the labels (L,). Divided by `loss_count` it is the mean as torch defines it:
    weights of classes count for the share that smoothing spreads, too."""
    if kind == "regression":
        return F.mse_loss(logits[:, 0], targets, reduction="sum")
    if kind == "multi":  # the mean over labels, or a text of many labels would count for more than one
        losses = F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights, reduction="none")
        return losses.mean(1).sum()
    return F.cross_entropy(logits, targets, weight=weights, reduction="sum", label_smoothing=label_smoothing)


def loss_count(kind: Kind, targets: Tensor, weights: Tensor | None) -> float:
    """What the summed loss of a batch is divided by: its texts, or the weights of their classes.

    A sum over parts of a batch: accumulated, the loss is that of torch on the whole batch.
    """
    return len(targets) if weights is None or kind != "single" else float(weights.double()[targets].sum())


def label_loss(kind: Kind, settings: Settings) -> Callable[..., Tensor]:
    """Of a model and a batch's tensors: the sum over its texts, see `loss_count`."""
    label_smoothing, r_drop = settings.label_smoothing, settings.r_drop

    def plain(
        model: Model,
        ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        targets: Tensor,
        weights: Tensor | None,
    ) -> Tensor:
        return loss_from_logits(
            kind, label_logits(model, ids, attention_mask, token_type_ids), targets, weights, label_smoothing
        )

    def with_r_drop(
        model: Model,
        ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        targets: Tensor,
        weights: Tensor | None,
    ) -> Tensor:
        """All texts side by side with themselves: dropout is another one for each row."""
        doubled = (torch.cat([t, t]) for t in (ids, attention_mask, token_type_ids))
        first, second = label_logits(model, *doubled).chunk(2)
        both = (loss_from_logits(kind, logits, targets, weights, label_smoothing) for logits in (first, second))
        apart = symmetric_kl(first.log_softmax(-1), second.log_softmax(-1))
        if weights is not None:  # a mean like the other, over texts that count as much
            apart = apart * weights[targets]
        return sum(both) / 2 + r_drop * apart.sum()

    return with_r_drop if r_drop else plain
