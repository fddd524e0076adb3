"""Other weights than the last ones: a running mean, and those of the best evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The weights that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def mean_of(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in double precision."""
    return {
        name: torch.stack([weights[name].double() for weights in several]).mean(0).to(tensor.dtype)
        for name, tensor in several[0].items()
    }


class Copies:
    """A second set of a model's trained weights."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.tensors = {name: p.detach().clone() for name, p in trained(model).items()}

    @torch.no_grad()
    def take(self) -> None:
        """The weights as they are now."""
        for name, p in trained(self.model).items():
            self.tensors[name].copy_(p)

    @torch.no_grad()
    def approach(self, decay: float, step: int) -> None:
        """A step of the running mean; the first ones forget faster, as there is little worth remembering yet."""
        weight = 1 - min(decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.tensors.values()), [p.detach() for p in trained(self.model).values()], weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with these weights, for a while."""
        before = Copies(self.model)
        self.put()
        try:
            yield
        finally:
            before.put()

    @torch.no_grad()
    def put(self) -> None:
        """Into the model, for good."""
        for name, p in trained(self.model).items():
            p.copy_(self.tensors[name])
