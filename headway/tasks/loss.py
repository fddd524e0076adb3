"""Losses as a sum and a count, divided once by whoever has seen all of the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.model.heads import LMHead

IGNORE = -100
"""Target of a position that does not count."""


def token_loss(head: LMHead, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the targets (…) under the head's scores of hidden (…, M): sum and number of those counted."""
    scores = head.wide(hidden.flatten(0, -2))
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # a sum of many small numbers
    targets = targets.flatten()
    total = F.cross_entropy(scores, targets, ignore_index=IGNORE, reduction="sum")
    return total, (targets != IGNORE).sum()
