"""Grouped linear maps: one matrix for each expert, and rows that are sorted by expert.

Letters: E experts, R rows, N outputs, K inputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.kernels.linear import linear
from headway.kernels.quantized import quantize_matrix

MULTIPLE = 8
"""torch's grouped product reads rows of 16 bytes at a time, which are so many bfloat16 numbers."""


class Grouped(nn.Module):
    """The matrices of all experts, one below the other, as they are stacked from the tensors of a file."""

    def __init__(self, experts: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.experts = experts
        self.weight = nn.Parameter(torch.empty(experts * outputs, inputs))
        """(E·N, K)"""

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        """x (R, K), of which each expert has `sizes` (E,) rows in turn, to (R, N)."""
        each = self.weight.unflatten(0, (self.experts, -1))
        aligned = each.shape[1] % MULTIPLE == each.shape[2] % MULTIPLE == 0
        if x.is_cuda and x.dtype == torch.bfloat16 and aligned:
            return F.grouped_mm(x, each.to(x.dtype).transpose(1, 2), offs=sizes.cumsum(0, dtype=torch.int32))
        parts = zip(x.split(sizes.tolist()), each, strict=True)
        return torch.cat([linear(rows, weight) for rows, weight in parts if len(rows)])

    def of_one(self, x: Tensor, expert: int) -> Tensor:
        """The product of x (…, K) with the matrix of one expert."""
        return linear(x, self.weight.unflatten(0, (self.experts, -1))[expert])


class Int8Grouped(nn.Module):
    """Replaces `Grouped`."""

    def __init__(self, grouped: Grouped, name: str) -> None:
        super().__init__()
        matrices = grouped.weight.unflatten(0, (grouped.experts, -1))
        self.matrices = nn.ModuleList(quantize_matrix(matrix, name) for matrix in matrices)

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        parts = zip(x.split(sizes.tolist()), self.matrices, strict=True)
        return torch.cat([matrix(rows) for rows, matrix in parts if len(rows)])

    def of_one(self, x: Tensor, expert: int) -> Tensor:
        found: Tensor = self.matrices[expert](x)
        return found


def quantize_grouped_(module: nn.Module) -> None:
    """Quantize the matrices of all experts of a module in place."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, Grouped):
                setattr(part, name, Int8Grouped(child, name))
