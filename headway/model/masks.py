"""The attention bias of a pass, computed once from one attention mask and used by every layer.

Letters: B batch, T queries, S keys, H heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.model import StackConfig
from headway.kernels.sparse.pattern import in_ranges, key_ranges, sees_all
from headway.model.attention import AttentionBias, Backend
from headway.model.positions import RelativeBias, alibi_bias, token_positions


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

    @property
    def lengths(self) -> Tensor:
        """(B, T), or (1, 1) if no row has padding: the length of each token's sequence."""
        mask = self.attention_mask
        if mask is None:
            return torch.full((1, 1), self.positions.shape[1], device=self.positions.device)
        if mask.dtype == torch.bool:
            return mask.sum(-1, keepdim=True).expand(mask.shape)
        count = torch.zeros(len(mask), mask.shape[1] + 1, dtype=torch.long, device=mask.device)
        return count.scatter_add_(1, mask.long(), torch.ones_like(mask, dtype=torch.long)).gather(1, mask.long())


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
    seen = seen or Seen.of(config, q)
    special = relative is not None or config.alibi or (seen is not None and seen.repeats is not None)
    plain = seen is None and pairs is None and not special
    if q.attention_mask is None and k.attention_mask is None and plain:
        if not config.causal or queries == 1:
            return AttentionBias(backend=backend)
        if queries == keys:
            return AttentionBias(causal=True, backend=backend)
    visible = _visible(config, q, k, seen)
    bias = _score_bias(config, relative, q, k, seen) if special else None
    bias = bias if pairs is None else pairs if bias is None else bias + pairs
    if bias is not None and visible is not None:
        bias = bias.masked_fill(~visible, -torch.inf)
    return AttentionBias(tensor=visible if bias is None else bias, backend=backend)


@dataclass(frozen=True)
class Seen:
    """What each query sees by a sparse pattern, apart from padding, packing and causality."""

    ranges: Tensor
    """(B, T, R, 2), see `key_ranges`."""
    repeats: Tensor | None
    """(B, T): how often a query counts the first block, where BigBird's random blocks all are that block."""

    @classmethod
    def of(cls, config: StackConfig, q: Layout) -> Seen | None:
        if config.window is None and config.sparse is None:
            return None
        lengths, sparse = q.lengths, config.sparse
        repeats = None
        if sparse is not None and sparse.seed is None and sparse.random:
            once = torch.zeros_like(q.positions) if config.causal else sees_all(sparse, q.positions, lengths)
            repeats = torch.where(once > 0, 1, 1 + sparse.random)
        return cls(key_ranges(config, q.positions, lengths), repeats)


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

