"""Matrices in whole numbers of one byte: a quarter of the memory, and of the time that reading them takes.

Row n of a matrix is scale[n] · weight[n] with weights from -127 to 127. What they are multiplied with is rounded to
bfloat16 and summed up in float32, whichever way is taken: how many rows share a step does not change what it computes.
Letters: N rows of the matrix, K columns, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import DivergedError

if TYPE_CHECKING:
    from headway.model.model import Model

LARGEST = 127
FEW = 32
"""Rows up to which torch's own product is faster than a matrix in float32 made for the occasion."""
WHOLE = 32
"""That product (torch 2.13) reads columns in vectors and does not look where a row ends: only whole ones are safe."""


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
        if x.device.type == "cpu" and x.shape[:-1].numel() <= FEW and x.shape[-1] % WHOLE == 0:
            rows = x.reshape(-1, x.shape[-1]).bfloat16()
            product = torch._weight_int8pack_mm(rows, self.weight, self.scale)
            return product.view(*x.shape[:-1], len(self.weight)).to(x.dtype)
        return self.plainly(x)

    def plainly(self, x: Tensor) -> Tensor:
        """The same in steps, the faster way for many rows: one matrix serves them all."""
        # CPUs without bfloat16 instructions take ten times as long with it; GPUs sum up in float32 anyway
        kind = torch.bfloat16 if x.device.type == "cuda" else torch.float32
        product = F.linear(x.bfloat16().to(kind), self.weight.to(kind)) * self.scale
        return product.bfloat16().to(x.dtype)

    def rows(self, ids: Tensor) -> Tensor:
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
        """The matrix in float32, made anew each time: for losses that multiply in a kernel of their own."""
        return self.matrix.rows(torch.arange(self.out_features, device=self.matrix.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.matrix(x)
        return y if self.bias is None else y + self.bias


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
        return self.matrix.rows(ids).to(self.dtype)


def quantize_(model: Model) -> Model:
    """Quantize in place: matrices of the blocks, the output matrix, and the token table where it is the same.

    What is left, norms, biases, positions, small heads, stays as it is. Nothing trains afterwards.
    """
    if model.config.quantization == "int8" and any(isinstance(m, Int8Matrix) for m in model.modules()):
        return model
    for stack in (getattr(model, "encoder", None), getattr(model, "decoder", None)):
        for part in [] if stack is None else list(stack.blocks.modules()):
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(part, name, Int8Linear(_matrix(child.weight, name), child.bias))
    if model.config.lm is not None:
        _quantize_output(model)
    model.config = replace(model.config, quantization="int8")
    return model.requires_grad_(False)


def _quantize_output(model: Model) -> None:
    output, front = model.lm.output, model.target if model.config.decoder else model.source
    matrix = _matrix(output.weight, "output")
    if model.config.lm is not None and model.config.lm.tied:
        table: Any = Int8Embedding(matrix, output.weight.dtype)
        front.table = table
        if model.config.shared_embedding:
            model.source.table = table
    model.lm.output = Int8Linear(matrix, output.bias)  # type: ignore[assignment]


def _matrix(weight: Tensor, name: str) -> Int8Matrix:
    if not weight.is_meta and not bool(weight.isfinite().all()):
        raise DivergedError("T001", f"{name} has weights that are not finite numbers: nothing can stand for them")
    return Int8Matrix(weight)


def stored(module: Any) -> tuple[Tensor, ...]:
    """The tensors that hold a linear map's matrix or a table, one row for each of its own."""
    quantised = isinstance(module, Int8Linear | Int8Embedding)
    return (module.matrix.weight, module.matrix.scale) if quantised else (module.weight,)
