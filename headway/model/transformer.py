"""The block and the stack: what every family is made of.

Letters: B batch, T tokens, M width of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import Activation, StackConfig
from headway.model.attention import Attention, Backend, View, Watch, below
from headway.model.cache import KeyValues
from headway.model.masks import Layout, cross_view, self_view
from headway.model.norms import make_norm
from headway.model.positions import RelativeBias, rotary_angles


def activation(name: Activation, x: Tensor) -> Tensor:
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "tanh": torch.tanh,
    }
    return table[name](x)


class FeedForward(nn.Module):
    """The same two-layer network for every token; gate and up share one matrix."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.activation, self.gated = config.activation, config.gated
        self.dropout = config.activation_dropout
        self.up = nn.Linear(config.d_model, config.d_ff * (2 if config.gated else 1), bias=config.ffn_bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.ffn_bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            gate, x = x.chunk(2, -1)
            x = activation(self.activation, gate) * x
        else:
            x = activation(self.activation, x)
        out: Tensor = self.down(F.dropout(x, self.dropout, self.training))
        return out


class Residual(nn.Module):
    """How a branch joins the stream: x + f(norm(x)), or norm(x + f(x)), or without the x to show what it is for."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.pre, self.skip, self.dropout = config.norm_at == "pre", config.residual, config.dropout
        self.norm = make_norm(config)
        scale = config.layer_scale
        self.scale = None if scale is None else nn.Parameter(torch.full((config.d_model,), scale))

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        y = branch(self.norm(x) if self.pre else x)
        y = F.dropout(y, self.dropout, self.training)
        if self.scale is not None:
            y = y * self.scale
        if self.skip:
            y = x + y
        return y if self.pre else self.norm(y)


class Block(nn.Module):
    """Attention, cross-attention where there is an encoder, feed-forward."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.attention, self.residual1 = Attention(config), Residual(config)
        if config.cross:
            self.cross, self.residual_cross = Attention(config, cross=True), Residual(config)
        self.ffn, self.residual2 = FeedForward(config), Residual(config)

    def forward(
        self,
        x: Tensor,
        view: View,
        memory: tuple[tuple[Tensor, Tensor] | Tensor, View] | None = None,
        angles: tuple[Tensor, Tensor] | None = None,
        cache: tuple[KeyValues, int] | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """`memory` is the encoder's output, or its keys and values from a cache, with the view of it."""
        x = self.residual1(x, lambda y: self.attention(y, view, angles, cache, below(watch, "attention")))
        if memory is not None:
            source, source_view = memory
            kv = self.cross.remember(source) if isinstance(source, Tensor) else source
            x = self.residual_cross(x, lambda y: self.cross.across(y, kv, source_view, below(watch, "cross")))
        x = self.residual2(x, self.ffn)
        return x


class Stack(nn.Module):
    """Blocks one after another; the view, rotary angles and relative bias are made once and serve them all."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.relative = RelativeBias(config.relative, config.n_heads, config.causal) if config.relative else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = make_norm(config) if config.final_norm else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        *,
        again: Tensor | None = None,
        memory: Tensor | None = None,
        memory_keep: Tensor | None = None,
        cache: KeyValues | None = None,
        backend: Backend = "fused",
        watch: Watch | None = None,
    ) -> Tensor:
        """x (B, T, M) to (B, T, M). `again` is added before every block after the first (positions, on request)."""
        config = self.config
        keys = layout if cache is None else _cached_layout(cache)
        view = self_view(config, self.relative, layout, keys, backend)
        angles = rotary_angles(config.rope, config.head_width, layout.positions) if config.rope else None
        look = cross_view(layout.keep, memory_keep, backend) if config.cross else None
        for i, block in enumerate(self.blocks):
            if again is not None and i:
                x = x + again
            source = cache.memory[i] if cache is not None and look is not None else memory
            seen = None if look is None or source is None else (source, look)
            here = below(watch, f"blocks.{i}")
            x = block(x, view, seen, angles, None if cache is None else (cache, i), here)
            if here is not None:
                here("residual", lambda x=x: x)
        return x if self.norm is None else self.norm(x)


def _cached_layout(cache: KeyValues) -> Layout:
    """The slots a step looks at."""
    keep = cache.keep[:, : cache.span] if cache.padded else None
    return Layout(cache.positions[:, : cache.span], keep)
