"""Weights quantized to int8: a quarter of the memory, and of the time to read them.

Row n of a matrix is scale[n] · weight[n] with weights from -127 to 127. The product rounds its input to bfloat16 and
sums in float32. On a CPU one kernel sums every row in the same order for any number of rows, so a row's product is the
same to the bit, alone or in a batch.
Letters: N rows of the matrix, K columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import DivergedError
from headway.resources import VECTOR_BYTES

LARGEST = 127
COLUMN_MULTIPLE = 32
"""torch's product (2.13) loads columns in vectors and reads past the end of a row: only full vectors are safe."""


def is_aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % VECTOR_BYTES == 0


def aligned(tensor: Tensor) -> Tensor:
    """The tensor itself if it is contiguous and aligned, otherwise a copy that is.

    torch's int8 product loads whole vectors and crashes (SIGSEGV with AVX-512) at an address that is no multiple of
    their size. A tensor mapped from a safetensors file starts at any multiple of 8 bytes, a view of a tensor anywhere.
    """
    contiguous = tensor.contiguous()
    return contiguous if is_aligned(contiguous) else contiguous.clone()


class Int8Matrix(nn.Module):
    """A quantized matrix (N, K) with one scale per row; a linear layer and an embedding may share it."""

    weight: Tensor
    """(N, K) int8"""
    scale: Tensor
    """(N,) bfloat16, as torch's product needs it; the weights were rounded with this rounded scale."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        exact = matrix.detach().float()
        scale = (exact.abs().amax(1) / LARGEST).bfloat16()
        steps = exact / scale.float().where(scale > 0, 1.0)[:, None]  # a row of zeros has scale 0
        self.register_buffer("weight", steps.round().clamp(-LARGEST, LARGEST).to(torch.int8))
        self.register_buffer("scale", scale)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8Matrix:
        """Move with the model, but keep the dtypes: small scales would be zero in float16."""
        scale = self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scale = scale.to(self.weight.device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """x (…, K) times the transposed matrix: (…, N)."""
        return self.product(x).to(x.dtype)

    def product(self, x: Tensor) -> Tensor:
        """The same in bfloat16: adding a float32 bias then gives float32 without another conversion."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():  # a compiler sees no addresses
            return self.reference(x)
        if not (is_aligned(self.weight) and self.weight.is_contiguous()):
            self.weight = aligned(self.weight)  # once, until the weight is replaced
        rows, weight, short = x.bfloat16().reshape(-1, x.shape[-1]), self.weight, -x.shape[-1] % COLUMN_MULTIPLE
        if short:
            rows, weight = F.pad(rows, (0, short)), F.pad(weight, (0, short))
        found = torch._weight_int8pack_mm(aligned(rows), weight, aligned(self.scale))
        return found.view(*x.shape[:-1], len(weight))

    def reference(self, x: Tensor) -> Tensor:
        """The same with torch's public functions, up to the order of sums; on a GPU the only way."""
        # a CPU without bfloat16 instructions takes ten times as long with it; a GPU sums in float32 anyway
        kind = torch.bfloat16 if x.device.type == "cuda" else torch.float32
        return (F.linear(x.bfloat16().to(kind), self.weight.to(kind)) * self.scale).bfloat16()

    def dequantized_rows(self, ids: Tensor) -> Tensor:
        """Rows of the matrix (…, K) in float32."""
        return self.weight[ids].float() * self.scale[ids].float()[..., None]


class Int8Linear(nn.Module):
    """Replaces `nn.Linear`."""

    def __init__(self, matrix: Int8Matrix, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.matrix, self.bias = matrix, bias
        self.out_features, self.in_features = matrix.weight.shape

    @property
    def weight(self) -> Tensor:
        """The matrix in float32, computed at every access: for code that multiplies in its own way."""
        return self.matrix.weight.float().mul_(self.matrix.scale.float()[:, None])

    def forward(self, x: Tensor) -> Tensor:
        y = self.matrix.product(x)
        return y.to(x.dtype) if self.bias is None else (y + self.bias).to(x.dtype)


class Int8Embedding(nn.Module):
    """Replaces an `nn.Embedding` that is tied to the output matrix."""

    def __init__(self, matrix: Int8Matrix, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix, self.dtype = matrix, dtype
        self.num_embeddings, self.embedding_dim = matrix.weight.shape

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8Embedding:
        """Follow conversions of dtype: there is no float weight that would show them."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.dtype = fn(torch.empty(0, dtype=self.dtype, device=self.matrix.weight.device)).dtype
        return self

    def forward(self, ids: Tensor) -> Tensor:
        return self.matrix.dequantized_rows(ids).to(self.dtype)


def quantize_linears_(module: nn.Module, kept: Sequence[str] = ()) -> None:
    """Quantize every linear layer of a module in place, but those of the names in `kept`."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear) and name not in kept:
                setattr(part, name, Int8Linear(quantize_matrix(child.weight, name), child.bias))


def quantize_matrix(weight: Tensor, name: str) -> Int8Matrix:
    """A matrix quantized; refused if a weight is not finite. `name` is for the error."""
    if not weight.is_meta and not bool(weight.isfinite().all()):
        raise DivergedError("T001", f"{name} has weights that are not finite numbers, which int8 cannot represent")
    return Int8Matrix(weight)


def stored_tensors(module: Any) -> tuple[Tensor, ...]:
    """The tensors that hold the matrix of a linear layer or an embedding, each with as many rows as the matrix."""
    is_int8 = isinstance(module, Int8Linear | Int8Embedding)
    return (module.matrix.weight, module.matrix.scale) if is_int8 else (module.weight,)
