"""Operations of a decoding step: Triton launches, and a stack of blocks built from them."""

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
    """act(linear(norm(x))) + add for one row x (1, K); `gated` halves the output."""
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
    """Add y to x in place. Returns the norm of x."""
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


Attention = Callable[[int, Tensor], Tensor]
"""Attention of a layer, from its index and its queries (or queries, keys and values), without the output product."""


def through(
    blocks: Sequence[Any], final: Any, x: Tensor, attend: Attention, cross_attend: Attention | None = None
) -> Tensor:
    """Rows x (B, M) through a stack, with its `final` norm if it is pre-norm; x is overwritten.

    Products are the library's, which is as fast as memory for several rows; one kernel stands between two of them.
    """
    branches: list[tuple[Any, Callable[[Tensor], Tensor]]] = []
    for layer, block in enumerate(blocks):
        branches.append(
            (block.residual1.norm, _attention_branch(layer, block.attention.qkv, attend, block.attention.out))
        )
        if cross_attend is not None:
            branches.append(
                (block.residual_cross.norm, _attention_branch(layer, block.cross.q, cross_attend, block.cross.out))
            )
        branches.append((block.residual2.norm, _ffn_branch(block.ffn)))
    if not isinstance(final, LayerNorm | RMSNorm):  # post-norm
        for norm, work in branches:
            x = add_and_norm(x, work(x), norm)
        return x
    normed = add_and_norm(x, None, branches[0][0])
    for (_, work), norm in zip(branches, [*(norm for norm, _ in branches[1:]), final], strict=True):
        normed = add_and_norm(x, work(normed), norm)
    return normed


def _attention_branch(layer: int, first: nn.Module, attend: Attention, last: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: last(attend(layer, first(x)))


def _ffn_branch(ffn: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: ffn.down(gate_values(ffn.up(x), ffn.activation, ffn.gated))


def _kind(norm: nn.Module | None) -> str:
    kinds: dict[object, str] = {LayerNorm: "layernorm", RMSNorm: "rmsnorm"}
    return kinds.get(type(norm), "none")


def power_of_two(count: int) -> int:
    """The smallest power of two that is not below a count."""
    return 1 << (count - 1).bit_length()
