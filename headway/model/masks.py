"""The attention bias of a pass, computed once from one attention mask and used by every layer.

Letters: B batch, T queries, S keys, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.model import StackConfig
from headway.kernels.sparse.pattern import Seen, in_ranges
from headway.model.attention import AttentionBias, Backend
from headway.model.positions import RelativeBias, alibi_bias, alibi_slopes, token_positions


@dataclass(frozen=True)
class Layout:
    """Positions and slots of the tokens of a pass: derived from the mask, never from a padded length."""

    positions: Tensor
    """(B, T), or (1, T) when no row has padding."""
    attention_mask: Tensor | None = None
    """(B, T): true for real tokens; as integers, the segment ids of packed sequences. None: all tokens are real."""
    first: int | Tensor = 0
    """Slot of the first token. With a cache, keys are in slots 0, 1, … and queries start here; (B, 1): one per row;
    (B, T): what each token's slot is more than its column."""

    @classmethod
    def of(cls, length: int, attention_mask: Tensor | None, device: torch.device) -> Layout:
        if attention_mask is None:
            return cls(torch.arange(length, device=device)[None])
        return cls(token_positions(attention_mask), attention_mask)

    @property
    def slots(self) -> Tensor:
        """(1, T) or (B, T); padding before slot 0 counts as slot 0."""
        return (self.first + torch.arange(self.positions.shape[1], device=self.positions.device)[None]).clamp(min=0)


def self_attention_bias(
    config: StackConfig,
    relative: RelativeBias | None,
    q: Layout,
    k: Layout,
    backend: Backend,
    pairs: Tensor | None = None,
    seen: Seen | None = None,
) -> AttentionBias:
    """The bias of a self-attention. Without padding, packing or position bias, kernels need no mask at all."""
    queries, keys = q.positions.shape[1], k.positions.shape[1]
    seen = seen or Seen.of(config, q.positions, q.attention_mask)
    special = relative is not None or config.alibi or (seen is not None and seen.repeats is not None)
    plain = seen is None and pairs is None and not special
    if q.attention_mask is None and k.attention_mask is None and plain:
        if not config.causal or queries == 1:
            return AttentionBias(backend=backend, softcap=config.softcap)
        if queries == keys:
            return AttentionBias(causal=True, backend=backend, softcap=config.softcap)
    visible = _visible(config, q, k, seen)
    bias = _score_bias(config, relative, q, k, seen) if special else None
    bias = bias if pairs is None else pairs if bias is None else bias + pairs
    if bias is not None and visible is not None:
        bias = bias.masked_fill(~visible, -torch.inf)
    return AttentionBias(tensor=visible if bias is None else bias, backend=backend, softcap=config.softcap)


def long_attention_bias(
    config: StackConfig, relative: RelativeBias | None, layout: Layout, batch: int, dropout: float
) -> AttentionBias:
    """The same bias for a long sequence of a sparse pattern, as a kernel that computes the visible pairs alone."""
    from headway.kernels.sparse.choice import Tokens, sparse_kernel  # imports torch's compiler

    def bias_of(q: Tokens, k: Tokens, seen: Seen) -> Tensor:
        bias = self_attention_bias(config, relative, _layout(*q), _layout(*k), "fused", seen=seen).tensor
        assert bias is not None
        return bias

    slopes = tuple(alibi_slopes(config.n_heads)) if config.alibi else None
    flexible = relative is None and not dropout
    tokens = Tokens(layout.positions, layout.attention_mask, layout.slots)
    return AttentionBias(kernel=sparse_kernel(config, tokens, bias_of, slopes, batch, flexible))


def _layout(positions: Tensor, attention_mask: Tensor | None, slots: Tensor) -> Layout:
    """Of tokens whose slots need not follow each other."""
    return Layout(positions, attention_mask, slots - torch.arange(slots.shape[1], device=slots.device))


def _visible(config: StackConfig, q: Layout, k: Layout, seen: Seen | None) -> Tensor | None:
    """(B, 1, T, S), or None if everything is visible. Each token sees itself, or padding would give NaN."""
    masks = [] if k.attention_mask is None else [_same_sequence(q.attention_mask, k.attention_mask)]
    own = q.slots[:, :, None] - k.slots[:, None, :]  # B T S
    if config.causal:
        masks.append(own >= 0)
    if seen is not None:
        masks.append(in_ranges(seen.ranges, k.positions))
    if not masks:
        return None
    visible = masks[0]
    for mask in masks[1:]:
        visible = visible & mask
    return (visible | (own == 0))[:, None]


def _same_sequence(q: Tensor | None, k: Tensor) -> Tensor:
    """(B, T, S): true for two real tokens of one sequence."""
    if q is None:
        return (k != 0)[:, None, :]
    return (q[:, :, None] == k[:, None, :]) & (k != 0)[:, None, :]


def _score_bias(config: StackConfig, relative: RelativeBias | None, q: Layout, k: Layout, seen: Seen | None) -> Tensor:
    parts: list[Tensor] = []
    if relative is not None:
        parts.append(relative(q.positions, k.positions))
    if config.alibi:
        parts.append(alibi_bias(config.n_heads, q.positions, k.positions))
    if config.sparse is not None and seen is not None and seen.repeats is not None:
        first = k.positions < config.sparse.block
        parts.append(torch.where(first[:, None, :], seen.repeats[:, :, None], 1).log()[:, None])
    bias = parts[0]
    for part in parts[1:]:
        bias = bias + part
    return bias


def cross_attention_bias(target: Tensor | None, memory: Tensor | None, backend: Backend) -> AttentionBias:
    """The bias of a cross-attention: all real source tokens are visible, or those of the same packed sequence."""
    if memory is None:
        return AttentionBias(backend=backend)
    if memory.dtype == torch.bool or target is None:
        visible = (memory != 0)[:, None, :]
    else:
        visible = (target[:, :, None] == memory[:, None, :]) & (memory != 0)[:, None, :]
    nothing = ~visible.any(
        -1, keepdim=True
    )  # of padding or an empty source: sees everything, since a softmax over nothing is NaN
    return AttentionBias(tensor=(visible | nothing)[:, None], backend=backend)
