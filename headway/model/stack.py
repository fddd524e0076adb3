"""The block and the stack of blocks, which every family is made of.

Letters: B batch, T tokens, M width of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import Activation, StackConfig
from headway.kernels.linear import Linear
from headway.kernels.sparse.tiles import long_from
from headway.model.attention import Attention, AttentionBias, Backend, Hook, scoped
from headway.model.cache import KVCacheLike
from headway.model.masks import Layout, cross_attention_bias, long_attention_bias, self_attention_bias
from headway.model.norms import make_norm
from headway.model.positions import RelativeBias, rotary_angles


def activation(name: Activation, x: Tensor) -> Tensor:
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    table: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "quick_gelu": lambda y: y * torch.sigmoid(1.702 * y),  # Hendrycks & Gimpel 2016, as in CLIP
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
        self.up = Linear(config.d_model, config.d_ff * (2 if config.gated else 1), bias=config.ffn_bias)
        self.down = Linear(config.d_ff, config.d_model, bias=config.ffn_bias)

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
    """A residual connection: x + f(norm(x)), or norm(x + f(x)); the x can be left out to show what it is for."""

    def __init__(self, config: StackConfig, drop_path: float = 0.0) -> None:
        super().__init__()
        self.pre, self.skip, self.dropout = config.norm_at == "pre", config.residual, config.dropout
        self.drop_path = drop_path
        self.norm = make_norm(config)
        scale = config.layer_scale
        self.scale = None if scale is None else nn.Parameter(torch.full((config.d_model,), scale))
        self.modulate = Linear(config.d_model, 3 * config.d_model) if config.modulation else None

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor], condition: Tensor | None = None) -> Tensor:
        """`condition` (B, M) is what shift, scale and gate follow from; the gate starts at zero (adaLN-Zero)."""
        y, gate = self.norm(x) if self.pre else x, None
        if self.modulate is not None and condition is not None:
            shift, scale, gate = self.modulate(condition)[:, None].chunk(3, -1)
            y = y * (1 + scale) + shift
        y = F.dropout(branch(y), self.dropout, self.training)
        if gate is not None:
            y = y * gate
        if self.scale is not None:
            y = y * self.scale
        if self.drop_path and self.training:
            keep = 1 - self.drop_path
            y = y * y.new_empty(len(y), 1, 1).bernoulli_(keep).div_(keep)
        if self.skip:
            y = x + y
        return y if self.pre else self.norm(y)


class Block(nn.Module):
    """Self-attention, cross-attention in an encoder–decoder, feed-forward network."""

    def __init__(self, config: StackConfig, layer: int = 0) -> None:
        super().__init__()
        rate = config.drop_path * layer / max(1, config.n_layers - 1)
        self.attention, self.residual1 = Attention(config), Residual(config, rate)
        if config.cross:
            self.cross, self.residual_cross = Attention(config, cross=True), Residual(config, rate)
        self.ffn, self.residual2 = FeedForward(config), Residual(config, rate)

    def forward(
        self,
        x: Tensor,
        bias: AttentionBias,
        memory: tuple[tuple[Tensor, Tensor] | Tensor, AttentionBias] | None = None,
        angles: tuple[Tensor, Tensor] | None = None,
        cache: tuple[KVCacheLike, int] | None = None,
        hook: Hook | None = None,
        condition: Tensor | None = None,
    ) -> Tensor:
        """`memory` is the encoder's output, or its cached keys and values, with the bias of the cross-attention."""
        x = self.residual1(x, lambda y: self.attention(y, bias, angles, cache, scoped(hook, "attention")), condition)
        if memory is not None:
            source, cross_bias = memory
            kv = self.cross.project_kv(source) if isinstance(source, Tensor) else source
            x = self.residual_cross(x, lambda y: self.cross.cross_attend(y, kv, cross_bias, scoped(hook, "cross")))
        x = self.residual2(x, self.ffn, condition)
        return x


class Stack(nn.Module):
    """Blocks one after another. Attention bias and rotary angles are computed once and used by all of them."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.relative = RelativeBias(config.relative, config.n_heads, config.causal) if config.relative else None
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        self.norm = make_norm(config) if config.final_norm else None
        modulated = config.modulation and config.final_norm
        self.modulate = Linear(config.d_model, 2 * config.d_model) if modulated else None

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        repeated_positions: Tensor | None = None,
        *,
        memory: Tensor | None = None,
        memory_attention_mask: Tensor | None = None,
        cache: KVCacheLike | None = None,
        condition: Tensor | None = None,
        pairs: Tensor | AttentionBias | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Tensor:
        """x (B, T, M) to (B, T, M). `repeated_positions` is added before every block but the first.

        `pairs` (B, H, T, T) is added to the attention scores; an `AttentionBias` stands for all there is to add.
        """
        config = self.config
        keys = layout if cache is None else _cached_layout(cache)
        bias = pairs
        if bias is None and hook is None and backend == "fused" and self._is_long(layout, keys):
            dropout = config.attention_dropout if self.training else 0.0
            bias = long_attention_bias(config, self.relative, layout, len(x), dropout)
        if not isinstance(bias, AttentionBias):
            bias = self_attention_bias(config, self.relative, layout, keys, backend, bias)
        angles = rotary_angles(config.rope, config.head_width, layout.positions) if config.rope else None
        cross_bias = (
            cross_attention_bias(layout.attention_mask, memory_attention_mask, backend) if config.cross else None
        )
        for i, block in enumerate(self.blocks):
            if repeated_positions is not None and i:
                x = x + repeated_positions
            source = cache.memory[i] if cache is not None and cross_bias is not None else memory
            seen = None if cross_bias is None or source is None else (source, cross_bias)
            here = scoped(hook, f"blocks.{i}")
            x = block(x, bias, seen, angles, None if cache is None else (cache, i), here, condition)
            if here is not None:
                here("residual", lambda x=x: x)
        x = x if self.norm is None else self.norm(x)
        if self.modulate is not None and condition is not None:
            shift, scale = self.modulate(condition)[:, None].chunk(2, -1)
            x = x * (1 + scale) + shift
        return x

    def _is_long(self, q: Layout, k: Layout) -> bool:
        """Whether tokens attend to themselves alone, and are so many that a sparse pattern is worth its own kernel."""
        length, least = q.positions.shape[1], long_from(self.config, q.positions.device)
        alone = length == k.positions.shape[1] and isinstance(q.first, int) and q.first == 0
        return least is not None and length >= least and alone


def _cached_layout(cache: KVCacheLike) -> Layout:
    """The layout of the cache slots that a step sees."""
    attention_mask = cache.attention_mask[:, : cache.span] if cache.padded else None
    return Layout(cache.positions[:, : cache.span], attention_mask)
