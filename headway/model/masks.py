"""The attention bias of a pass, computed once from one attention mask and used by every layer.

Letters: B batch, T queries, S keys, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.model import StackConfig
from headway.model.attention import AttentionBias, Backend
from headway.model.positions import RelativeBias, alibi_bias, bigbird_bias, token_positions


@dataclass(frozen=True)
class Layout:
    """Positions and slots of the tokens of a pass: derived from the mask, never from a padded length."""

    positions: Tensor
    """(B, T), or (1, T) when no row has padding."""
    attention_mask: Tensor | None = None
    """(B, T): true for real tokens; as integers, the segment ids of packed sequences. None: all tokens are real."""
    first: int | Tensor = 0
    """Slot of the first token. With a cache, keys are in slots 0, 1, … and queries start here; (B, 1): one per row."""

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
) -> AttentionBias:
    """The bias of a self-attention. Without padding, packing or position bias, kernels need no mask at all."""
    queries, keys = q.positions.shape[1], k.positions.shape[1]
    special = relative is not None or config.alibi or config.sparse is not None
    plain = config.window is None and pairs is None and not special
    if q.attention_mask is None and k.attention_mask is None and plain:
        if not config.causal or queries == 1:
            return AttentionBias(backend=backend)
        if queries == keys:
            return AttentionBias(causal=True, backend=backend)
    same = _same_sequence(q.attention_mask, k.attention_mask)
    visible = _visible(config, q, k, same)
    bias = _score_bias(config, relative, q, k, same) if special else None
    bias = bias if pairs is None else pairs if bias is None else bias + pairs
    if bias is not None and visible is not None:
        bias = bias.masked_fill(~visible, -torch.inf)
    return _with_backend(visible if bias is None else bias, backend)


def _same_sequence(q: Tensor | None, k: Tensor | None) -> Tensor | None:
    """(B, T, S): true for two real tokens of one sequence; None if all pairs are."""
    if q is None or k is None:
        return None if k is None else (k != 0)[:, None, :]
    return (q[:, :, None] == k[:, None, :]) & (k != 0)[:, None, :]


def _visible(config: StackConfig, q: Layout, k: Layout, same: Tensor | None) -> Tensor | None:
    """(B, 1, T, S), or None if everything is visible. Each token sees itself, or padding would give NaN."""
    masks = [] if same is None else [same]
    own = q.slots[:, :, None] - k.slots[:, None, :]  # B T S
    if config.causal:
        masks.append(own >= 0)
    if config.window is not None:
        masks.append((q.positions[:, :, None] - k.positions[:, None, :]).abs() < config.window)
    if not masks:
        return None
    visible = masks[0]
    for mask in masks[1:]:
        visible = visible & mask
    return (visible | (own == 0))[:, None]


def _score_bias(
    config: StackConfig, relative: RelativeBias | None, q: Layout, k: Layout, same: Tensor | None
) -> Tensor:
    parts: list[Tensor] = []
    if relative is not None:
        parts.append(relative(q.positions, k.positions))
    if config.alibi:
        parts.append(alibi_bias(config.n_heads, q.positions, k.positions))
    if config.sparse is not None:
        length = k.positions.shape[1] if same is None else same.sum(-1)
        length = torch.as_tensor(length, device=q.positions.device).expand(q.positions.shape)
        parts.append(bigbird_bias(config.sparse, q.positions, k.positions, length))
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


def _with_backend(bias: Tensor | None, backend: Backend) -> AttentionBias:
    if backend != "flex" or bias is None:
        return AttentionBias(tensor=bias, backend=backend)
    from torch.nn.attention.flex_attention import create_block_mask

    open_ = bias if bias.dtype == torch.bool else bias > -torch.inf
    open_ = open_.any(1) if open_.shape[1] > 1 else open_[:, 0]
    rows = open_.shape[0] > 1

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return open_[b if rows else 0, i, j]

    batch, queries, keys = open_.shape
    block_mask = create_block_mask(allowed, batch if rows else None, None, queries, keys, device=open_.device)
    return AttentionBias(tensor=bias, backend=backend, block_mask=block_mask)
