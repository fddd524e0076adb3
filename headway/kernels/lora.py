"""LoRA (Hu et al. 2022): a trained product of two small matrices beside a frozen one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headway.kernels.linear import Linear, linear

SCALE = 2.0
"""Factor on the adapter's output: the usual ratio of alpha to rank."""
ADAPTER_SUFFIXES = (".narrow", ".widen")
"""The names of an adapter's weights end so; they are also the names in its file."""


class LoRALinear(nn.Linear):
    """W x + b + scale · widen (narrow x). At first it equals W x + b, because `widen` starts at zero."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        device = base.weight.device
        self.narrow = nn.Parameter(torch.empty(rank, base.in_features, device=device))
        self.widen = nn.Parameter(torch.zeros(base.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.narrow, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        beside = linear(linear(x.to(self.narrow.dtype), self.narrow), self.widen)
        return linear(x, self.weight, self.bias) + SCALE * beside.to(x.dtype)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain linear layer that computes the same."""
        plain = Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        change = SCALE * (self.widen @ self.narrow)
        plain.weight = nn.Parameter((self.weight.to(change.dtype) + change).to(self.weight.dtype))
        plain.bias = self.bias
        return plain


def add_adapters(model: nn.Module, rank: int, targets: Sequence[str]) -> int:
    """Freeze the model and add adapters to the target matrices; returns their number."""
    model.requires_grad_(False)
    found = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child, rank))
                found += 1
    return found


def merge_adapters(model: nn.Module) -> None:
    """Replace every adapted matrix by a plain one that includes its adapter."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoRALinear):
                setattr(module, name, child.merged())
