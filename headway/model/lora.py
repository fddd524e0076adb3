"""Low-rank adapters (LoRA, Hu et al. 2022): a frozen matrix and a small trained product beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SCALE = 2.0
"""Of the adapter's output: the usual ratio of alpha to rank."""
ADAPTER_SUFFIXES = (".narrow", ".widen")
"""How the names of an adapter's weights end."""


class LoRALinear(nn.Linear):
    """W x + b + scale · widen (narrow x); it starts as W, since `widen` starts at zero."""

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
        beside = F.linear(F.linear(x.to(self.narrow.dtype), self.narrow), self.widen)
        return F.linear(x, self.weight, self.bias) + SCALE * beside.to(x.dtype)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain linear map that computes the same."""
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        change = SCALE * (self.widen @ self.narrow)
        plain.weight = nn.Parameter((self.weight.to(change.dtype) + change).to(self.weight.dtype))
        plain.bias = self.bias
        return plain


def add_adapters(model: nn.Module, rank: int, targets: Sequence[str]) -> int:
    """Freeze the model and put adapters beside the target matrices; how many there are."""
    model.requires_grad_(False)
    found = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child, rank))
                found += 1
    return found


def merge_adapters(model: nn.Module) -> None:
    """Back to plain matrices, each with its adapter added in."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoRALinear):
                setattr(module, name, child.merged())
