"""Other weights than the last ones: a running mean, and those of the best evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def average_weights(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in double precision."""
    return {
        name: torch.stack([weights[name].double() for weights in several]).mean(0).to(tensor.dtype)
        for name, tensor in several[0].items()
    }


class WeightCopy:
    """A second set of a model's trained weights."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.tensors = {name: p.detach().clone() for name, p in trainable_weights(model).items()}

    @torch.no_grad()
    def store(self) -> None:
        """The weights as they are now."""
        for name, p in trainable_weights(self.model).items():
            self.tensors[name].copy_(p)

    @torch.no_grad()
    def update(self, decay: float, step: int) -> None:
        """A step of the running mean; the first ones forget faster, as there is little worth remembering yet."""
        weight = 1 - min(decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(
            list(self.tensors.values()), [p.detach() for p in trainable_weights(self.model).values()], weight
        )

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The model with these weights, for a while."""
        before = WeightCopy(self.model)
        self.copy_to_model()
        try:
            yield
        finally:
            before.copy_to_model()

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Into the model, for good."""
        for name, p in trainable_weights(self.model).items():
            p.copy_(self.tensors[name])
