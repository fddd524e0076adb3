"""quantize_: the large matrices of a transformer as int8."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.kernels.grouped import quantize_grouped_
from headway.kernels.quantized import Int8Embedding, Int8Linear, Int8Matrix, quantize_linears_, quantize_matrix

if TYPE_CHECKING:
    from headway.model.model import Transformer


ROUTERS = ("router", "shared_gate")
"""Small maps that choose among experts: rounded, they would choose others."""


def quantize_(model: Transformer) -> Transformer:
    """Quantize in place: the matrices of the blocks, the output matrix, and the token table if it is tied to it.

    Norms, biases, positions and other heads stay as they are. A quantized model cannot be trained.
    """
    if model.config.quantization == "int8" and any(isinstance(m, Int8Matrix) for m in model.modules()):
        return model
    for stack in (getattr(model, "encoder", None), getattr(model, "decoder", None)):
        if stack is not None:
            quantize_linears_(stack.blocks, kept=ROUTERS)
            quantize_grouped_(stack.blocks)
    if model.config.lm is not None:
        _quantize_output(model)
    model.config = replace(model.config, quantization="int8")
    return model.requires_grad_(False)


def _quantize_output(model: Transformer) -> None:
    output, front = model.lm.output, model.target if model.config.decoder else model.source
    matrix = quantize_matrix(output.weight, "output")
    if model.config.lm is not None and model.config.lm.tied:
        table: Any = Int8Embedding(matrix, output.weight.dtype)
        front.table = table
        if model.config.shared_embedding:
            model.source.table = table
    model.lm.output = Int8Linear(matrix, output.bias)  # type: ignore[assignment]
