"""The block and the stack of blocks, which every family is made of.

Letters: B batch, T tokens, M width of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import StackConfig
from headway.kernels.linear import Linear
from headway.kernels.sparse.tiles import long_from
from headway.model.attention import Attention, AttentionBias, Backend, Hook, scoped
from headway.model.cache import KVCacheLike
from headway.model.feed_forward import Experts, FeedForward
from headway.model.masks import Layout, cross_attention_bias, long_attention_bias, self_attention_bias
from headway.model.norms import make_norm
from headway.model.positions import Distances, RelativeBias, rotary_angles


class Residual(nn.Module):
    """A residual connection such as x + f(norm(x)); the x can be left out to show what it is for."""

    def __init__(self, config: StackConfig, drop_path: float = 0.0, norm: bool = True) -> None:
        """Without a `norm`, the branch reads what another one has normalised, or x itself."""
        super().__init__()
        self.norm_at, self.skip, self.dropout = config.norm_at, config.residual, config.dropout
        self.drop_path, self.factor = drop_path, config.residual_scale
        self.norm = make_norm(config) if norm else None
        self.after = make_norm(config) if config.norm_at == "sandwich" else None
        scale = config.layer_scale
        self.scale = None if scale is None else nn.Parameter(torch.full((config.d_model,), scale))
        self.modulate = Linear(config.d_model, 3 * config.d_model) if config.modulation else None

    def read(self, x: Tensor) -> Tensor:
        """What the branch reads of x."""
        before = self.norm is not None and self.norm_at in ("pre", "sandwich")
        return self.norm(x) if before else x  # type: ignore[misc]

    def forward(
        self,
        x: Tensor,
        branch: Callable[[Tensor], Tensor],
        condition: Tensor | None = None,
        given: Tensor | None = None,
    ) -> Tensor:
        """`condition` (B, M) is what shift, scale and gate follow from; the gate starts at zero (adaLN-Zero).

        `given` is what the branch reads if it is not of x.
        """
        y, gate = self.read(x) if given is None else given, None
        if self.modulate is not None and condition is not None:
            shift, scale, gate = self.modulate(condition)[:, None].chunk(3, -1)
            y = y * (1 + scale) + shift
        y = branch(y)
        after = self.norm if self.norm_at == "branch" else self.after
        y = F.dropout(y if after is None else after(y), self.dropout, self.training)
        if gate is not None:
            y = y * gate
        if self.scale is not None:
            y = y * self.scale
        if self.factor != 1.0:
            y = y * self.factor
        if self.drop_path and self.training:
            keep = 1 - self.drop_path
            y = y * y.new_empty(len(y), 1, 1).bernoulli_(keep).div_(keep)
        if self.skip:
            y = x + y
        return y if self.norm is None or self.norm_at != "post" else self.norm(y)


class Block(nn.Module):
    """Self-attention, cross-attention in an encoder–decoder, feed-forward network."""

    def __init__(self, config: StackConfig, layer: int = 0) -> None:
        super().__init__()
        rate = config.drop_path * layer / max(1, config.n_layers - 1)
        self.attention, self.residual1 = Attention(config), Residual(config, rate, config.first_norm or layer > 0)
        if config.cross:
            self.cross, self.residual_cross = Attention(config, cross=True), Residual(config, rate)
        self.ffn = FeedForward(config) if config.experts is None else Experts(config, config.experts)
        self.residual2 = Residual(config, rate, config.parallel != "one")
        self.parallel, self.routed = config.parallel != "none", config.experts is not None

    def forward(
        self,
        x: Tensor,
        bias: AttentionBias,
        memory: tuple[tuple[Tensor, Tensor] | Tensor, AttentionBias] | None = None,
        angles: tuple[Tensor, Tensor] | None = None,
        cache: tuple[KVCacheLike, int] | None = None,
        hook: Hook | None = None,
        condition: Tensor | None = None,
        routes: list[Tensor] | None = None,
    ) -> Tensor:
        """`memory` is the encoder's output, or its cached keys and values, with the bias of the cross-attention.

        `routes` takes the logits of a router.
        """

        def attention(y: Tensor) -> Tensor:
            return self.attention(y, bias, angles, cache, scoped(hook, "attention"))  # type: ignore[no-any-return]

        ffn = partial(self.ffn, routes=routes) if self.routed else self.ffn
        if self.parallel:
            first = self.residual1.read(x)
            second = first if self.residual2.norm is None else self.residual2.read(x)
            return self.residual2(self.residual1(x, attention, condition, first), ffn, condition, second)  # type: ignore[no-any-return]
        x = self.residual1(x, attention, condition)
        if memory is not None:
            source, cross_bias = memory
            kv = self.cross.project_kv(source) if isinstance(source, Tensor) else source
            x = self.residual_cross(x, lambda y: self.cross.cross_attend(y, kv, cross_bias, scoped(hook, "cross")))
        return self.residual2(x, ffn, condition)  # type: ignore[no-any-return]


class Stack(nn.Module):
    """Blocks one after another. Attention bias and rotary angles are computed once for all blocks of a kind."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.relative = RelativeBias(config.relative, config.n_heads, config.causal) if config.relative else None
        self.distances = Distances(config.distances, config) if config.distances else None
        layers = [config.layer(number) for number in range(config.n_layers)]
        self.kinds = list(dict.fromkeys(layers))
        self.kind_of = [self.kinds.index(layer) for layer in layers]
        blocks = [Block(layer, number) for number, layer in enumerate(layers[:1] if config.shared else layers)]
        self.blocks = nn.ModuleList(blocks * config.n_layers if config.shared else blocks)
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
        routes: list[Tensor] | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Tensor:
        """x (B, T, M) to (B, T, M). `repeated_positions` is added before every block but the first.

        `pairs` (B, H, T, T) is added to the attention scores; an `AttentionBias` stands for all there is to add.
        `routes` takes the logits of every router.
        """
        config = self.config
        keys = layout if cache is None else _cached_layout(cache)
        may_be_long = hook is None and backend == "fused"
        biases = [
            pairs
            if isinstance(pairs, AttentionBias)
            else self._long_bias(kind, layout, len(x))
            if pairs is None and may_be_long and _is_long(kind, layout, keys)
            else self_attention_bias(kind, self.relative, layout, keys, backend, pairs)
            for kind in self.kinds
        ]
        if self.distances is not None:
            found = self.distances(layout.positions, keys.positions)
            biases = [replace(bias, distances=found) for bias in biases if isinstance(bias, AttentionBias)]
        angles = [
            None if kind.rope is None else rotary_angles(kind.rope, kind.head_width, layout.positions)
            for kind in self.kinds
        ]
        cross_bias = (
            cross_attention_bias(layout.attention_mask, memory_attention_mask, backend) if config.cross else None
        )
        for i, block in enumerate(self.blocks):
            if repeated_positions is not None and i:
                x = x + repeated_positions
            source = cache.memory[i] if cache is not None and cross_bias is not None else memory
            seen = None if cross_bias is None or source is None else (source, cross_bias)
            here, kind = scoped(hook, f"blocks.{i}"), self.kind_of[i]
            x = block(
                x, biases[kind], seen, angles[kind], None if cache is None else (cache, i), here, condition, routes
            )
            if here is not None:
                here("residual", lambda x=x: x)
        x = x if self.norm is None else self.norm(x)
        if self.modulate is not None and condition is not None:
            shift, scale = self.modulate(condition)[:, None].chunk(2, -1)
            x = x * (1 + scale) + shift
        return x

    def _long_bias(self, kind: StackConfig, layout: Layout, batch: int) -> AttentionBias:
        return long_attention_bias(kind, self.relative, layout, batch, kind.attention_dropout if self.training else 0.0)


def _is_long(config: StackConfig, q: Layout, k: Layout) -> bool:
    """Whether tokens attend to themselves alone, and are so many that a sparse pattern is worth its own kernel."""
    length, least = q.positions.shape[1], long_from(config, q.positions.device)
    alone = length == k.positions.shape[1] and isinstance(q.first, int) and q.first == 0
    return least is not None and length >= least and alone


def _cached_layout(cache: KVCacheLike) -> Layout:
    """The layout of the cache slots that a step sees."""
    attention_mask = cache.attention_mask[:, : cache.span] if cache.padded else None
    return Layout(cache.positions[:, : cache.span], attention_mask)
