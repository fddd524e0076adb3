"""Products of a decoding step, and what stands between them, by the kernels in `kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headway.model.norms import LayerNorm, RMSNorm


def vector_product(
    x: Tensor,
    linear: nn.Linear,
    *,
    norm: LayerNorm | RMSNorm | None = None,
    act: str = "none",
    gated: bool = False,
    add: Tensor | None = None,
) -> Tensor:
    """act(linear(norm(x))) + add of one row x (1, K); `gated` halves what comes out."""
    from headway.generate.accel.cuda import kernels

    inputs, outputs = linear.in_features, linear.out_features // (2 if gated else 1)
    out = torch.empty(1, outputs, device=x.device, dtype=x.dtype)
    block_n = 8 if outputs > 1 << 15 else 4
    block_k = 2048 if inputs % 2048 == 0 and inputs > 4096 else 1024 if inputs % 1024 == 0 else 256
    kernels.vector_product[(-(-outputs // block_n),)](
        x, linear.weight, linear.bias if linear.bias is not None else x, getattr(norm, "weight", x),
        getattr(norm, "bias", x), x if add is None else add, out, outputs, inputs,
        getattr(norm, "eps", 0.0), getattr(norm, "offset", 0.0),
        NORM=_kind(norm), ACT=act, GATED=gated, BIAS=linear.bias is not None, ADD=add is not None,
        BLOCK_N=block_n, BLOCK_K=block_k, WIDE_K=power_of_two(inputs), num_warps=4,
    )  # fmt: skip
    return out


def add_and_norm(x: Tensor, y: Tensor | None, norm: LayerNorm | RMSNorm) -> Tensor:
    """x becomes x + y; its norm is returned."""
    from headway.generate.accel.cuda import kernels

    out = torch.empty_like(x)
    kernels.add_and_norm[(len(x),)](
        x, x if y is None else y, norm.weight, getattr(norm, "bias", x), out, x.shape[1], norm.eps,
        getattr(norm, "offset", 0.0),
        ADD=y is not None, NORM=_kind(norm), WIDE_K=power_of_two(x.shape[1]), num_warps=4,
    )  # fmt: skip
    return out


def gate_values(x: Tensor, act: str, gated: bool) -> Tensor:
    """act(x), or act(gate) · value."""
    from headway.generate.accel.cuda import kernels

    rows, width = x.shape
    width //= 2 if gated else 1
    out = torch.empty(rows, width, device=x.device, dtype=x.dtype)
    kernels.gate_values[(rows, -(-width // 1024))](x, out, width, ACT=act, GATED=gated, BLOCK=1024, num_warps=4)
    return out


Look = Callable[[int, Tensor], Tensor]
"""What attention makes of a layer's queries, or of queries, keys and values, before its last product."""


def through(blocks: Sequence[Any], final: Any, x: Tensor, look: Look, across: Look | None = None) -> Tensor:
    """Rows x (B, M) through a stack, its `final` norm included where norms come first; x is used up.

    Products are the library's, which is as fast as memory for several rows; between them there is one kernel each.
    """
    branches: list[tuple[Any, Callable[[Tensor], Tensor]]] = []
    for layer, block in enumerate(blocks):
        branches.append((block.residual1.norm, _looking(layer, block.attention.qkv, look, block.attention.out)))
        if across is not None:
            branches.append((block.residual_cross.norm, _looking(layer, block.cross.q, across, block.cross.out)))
        branches.append((block.residual2.norm, _hidden(block.ffn)))
    if not isinstance(final, LayerNorm | RMSNorm):  # norms come after what they belong to
        for norm, work in branches:
            x = add_and_norm(x, work(x), norm)
        return x
    normed = add_and_norm(x, None, branches[0][0])
    for (_, work), norm in zip(branches, [*(norm for norm, _ in branches[1:]), final], strict=True):
        normed = add_and_norm(x, work(normed), norm)
    return normed


def _looking(layer: int, first: nn.Module, look: Look, last: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: last(look(layer, first(x)))


def _hidden(ffn: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: ffn.down(gate_values(ffn.up(x), ffn.activation, ffn.gated))


def _kind(norm: nn.Module | None) -> str:
    return {LayerNorm: "layernorm", RMSNorm: "rmsnorm"}.get(type(norm), "none")


def power_of_two(count: int) -> int:
    """The power of two that is not below a count."""
    return 1 << (count - 1).bit_length()
