"""Copies of the trained weights: their exponential moving average, and those of the best evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from headway.hub.trainable import trainable_weights


class WeightCopy:
    """A copy of a model's trainable weights."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.tensors = {name: p.detach().clone() for name, p in trainable_weights(model).items()}

    @torch.no_grad()
    def store(self) -> None:
        """Copy the model's current weights."""
        for name, p in trainable_weights(self.model).items():
            self.tensors[name].copy_(p)

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Replace the model's weights by this copy."""
        for name, p in trainable_weights(self.model).items():
            p.copy_(self.tensors[name])

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Use this copy as the model's weights inside a `with` block."""
        before = WeightCopy(self.model)
        self.copy_to_model()
        try:
            yield
        finally:
            before.copy_to_model()


class EMA(WeightCopy):
    """An exponential moving average of the weights."""

    @torch.no_grad()
    def update(self, decay: float, step: int) -> None:
        """Add the current weights. Early steps use a smaller decay, because the first weights are far from trained."""
        new_share = 1 - min(decay, (1 + step) / (10 + step))
        current = [p.detach() for p in trainable_weights(self.model).values()]
        torch._foreach_lerp_(list(self.tensors.values()), current, new_share)
