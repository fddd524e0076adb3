"""Matrices in whole numbers of one byte: a quarter of the memory, and of the time that reading them takes.

Row n of a matrix is scale[n] · weight[n] with weights from -127 to 127. What they are multiplied with is rounded to
bfloat16 and summed up in float32. On a CPU one kernel takes any number of rows and sums each row in the same order, so
the product of a row is the same to the bit, alone or among others.
Letters: N rows of the matrix, K columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import DivergedError
from headway.model.aligned import aligned, is_aligned

LARGEST = 127
WHOLE = 32
"""torch's product (2.13) reads columns in vectors and does not look where a row ends: only whole vectors are safe."""


class Int8Matrix(nn.Module):
    """A matrix (N, K) by rows: what a linear map and an embedding may share."""

    weight: Tensor
    """(N, K) int8"""
    scale: Tensor
    """(N,) bfloat16, which is what torch's product wants; the weights were rounded knowing it."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        exact = matrix.detach().float()
        scale = (exact.abs().amax(1) / LARGEST).bfloat16()
        steps = exact / scale.float().where(scale > 0, 1.0)[:, None]  # a row of zeros has none to divide by
        self.register_buffer("weight", steps.round().clamp(-LARGEST, LARGEST).to(torch.int8))
        self.register_buffer("scale", scale)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8Matrix:
        """Moves with the model, but keeps its types: in float16 small scales would be lost."""
        scale = self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scale = scale.to(self.weight.device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """x (…, K) times the transposed matrix: (…, N)."""
        return self.product(x).to(x.dtype)

    def product(self, x: Tensor) -> Tensor:
        """The same as it comes, in bfloat16: a bias in float32 added to it makes it float32 without a step more."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():  # a compiler sees no addresses to check
            return self.reference(x)
        if not (is_aligned(self.weight) and self.weight.is_contiguous()):
            self.weight = aligned(self.weight)  # once: it stays that way until somebody puts another one here
        rows, weight, short = x.bfloat16().reshape(-1, x.shape[-1]), self.weight, -x.shape[-1] % WHOLE
        if short:
            rows, weight = F.pad(rows, (0, short)), F.pad(weight, (0, short))
        found = torch._weight_int8pack_mm(aligned(rows), weight, aligned(self.scale))
        return found.view(*x.shape[:-1], len(weight))

    def reference(self, x: Tensor) -> Tensor:
        """The same in steps of public torch, up to the order of sums; on a GPU the only way."""
        # CPUs without bfloat16 instructions take ten times as long with it; GPUs sum up in float32 anyway
        kind = torch.bfloat16 if x.device.type == "cuda" else torch.float32
        return (F.linear(x.bfloat16().to(kind), self.weight.to(kind)) * self.scale).bfloat16()

    def dequantized_rows(self, ids: Tensor) -> Tensor:
        """Some of its rows, (…, K), in float32."""
        return self.weight[ids].float() * self.scale[ids].float()[..., None]


class Int8Linear(nn.Module):
    """Stands in for a linear map."""

    def __init__(self, matrix: Int8Matrix, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.matrix, self.bias = matrix, bias
        self.out_features, self.in_features = matrix.weight.shape

    @property
    def weight(self) -> Tensor:
        """The matrix in float32, made anew each time: for those that multiply in a way of their own."""
        return self.matrix.weight.float().mul_(self.matrix.scale.float()[:, None])

    def forward(self, x: Tensor) -> Tensor:
        y = self.matrix.product(x)
        return y.to(x.dtype) if self.bias is None else (y + self.bias).to(x.dtype)


class Int8Embedding(nn.Module):
    """Stands in for a table whose rows are also those of the output matrix."""

    def __init__(self, matrix: Int8Matrix, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix, self.dtype = matrix, dtype
        self.num_embeddings, self.embedding_dim = matrix.weight.shape

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8Embedding:
        """It has no weights whose type would say what its vectors should be."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.dtype = fn(torch.empty(0, dtype=self.dtype, device=self.matrix.weight.device)).dtype
        return self

    def forward(self, ids: Tensor) -> Tensor:
        return self.matrix.dequantized_rows(ids).to(self.dtype)


def quantize_linears_(module: nn.Module) -> None:
    """Quantize every linear map below a module, in place."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear):
                setattr(part, name, Int8Linear(quantize_matrix(child.weight, name), child.bias))


def quantize_matrix(weight: Tensor, name: str) -> Int8Matrix:
    """A matrix, if it is one of numbers; `name` is for the message."""
    if not weight.is_meta and not bool(weight.isfinite().all()):
        raise DivergedError("T001", f"{name} has weights that are not finite numbers: nothing can stand for them")
    return Int8Matrix(weight)


def stored_tensors(module: Any) -> tuple[Tensor, ...]:
    """The tensors that hold a linear map's matrix or a table, one row for each of its own."""
    quantised = isinstance(module, Int8Linear | Int8Embedding)
    return (module.matrix.weight, module.matrix.scale) if quantised else (module.weight,)
