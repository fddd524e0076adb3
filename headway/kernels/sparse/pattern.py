"""Sparse patterns: the keys that each token attends to, as a few ranges of positions. They are the definition.

Sliding windows (Beltagy et al. 2020), and BigBird's global, window and random blocks (Zaheer et al. 2020). A causal
pattern has its window to the left, random blocks of the past, and the first block as its only global one: so no token's
pattern depends on what follows it.

Letters: B batch, T queries, S keys, R ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.model import SparseConfig, StackConfig


@dataclass(frozen=True)
class Seen:
    """What queries see by a sparse pattern, apart from padding, packing and causality."""

    ranges: Tensor
    """(B, T, R, 2), see `key_ranges`."""
    repeats: Tensor | None
    """(B, T): how often a query counts the first block, where BigBird's random blocks all are that block."""

    @classmethod
    def of(cls, config: StackConfig, positions: Tensor, attention_mask: Tensor | None) -> Seen | None:
        """None if there is no pattern."""
        if config.window is None and config.sparse is None:
            return None
        lengths, sparse = sequence_lengths(positions, attention_mask), config.sparse
        repeats = None
        if sparse is not None and sparse.seed is None and sparse.random:
            repeats = torch.full_like(positions, 1 + sparse.random)
            if not config.causal:
                repeats = repeats.masked_fill(sees_all(sparse, positions, lengths), 1)
        return cls(key_ranges(config, positions, lengths), repeats)


def sequence_lengths(positions: Tensor, attention_mask: Tensor | None) -> Tensor:
    """(B, T): the length of each token's sequence."""
    if attention_mask is None:
        return torch.full_like(positions, positions.shape[1])
    if attention_mask.dtype == torch.bool:
        return attention_mask.sum(-1, keepdim=True).expand(attention_mask.shape)
    mask = attention_mask.long()
    count = torch.zeros(len(mask), mask.shape[1] + 1, dtype=torch.long, device=mask.device)
    return count.scatter_add_(1, mask, torch.ones_like(mask)).gather(1, mask)


def key_ranges(config: StackConfig, positions: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, R, 2): each query sees the keys of its own sequence at positions first ≤ p < end. Ranges never overlap.

    `positions` (B, T) are those of the queries; `lengths` (B, T), of their sequences, count only if not causal.
    """
    if config.sparse is not None:
        ranges = _bigbird(config.sparse, positions, lengths, config.causal)
    else:
        assert config.window is not None
        first, end = positions - config.window + 1, positions + config.window
        ranges = torch.stack([first.clamp(min=0), end], -1)[:, :, None]
    limit = (positions + 1 if config.causal else lengths)[:, :, None, None]
    return torch.minimum(ranges, limit)


def in_ranges(ranges: Tensor, keys: Tensor) -> Tensor:
    """(B, T, S): whether positions of keys (B, S) are in ranges (B, T, R, 2)."""
    seen = torch.zeros((), dtype=torch.bool, device=keys.device)
    for each in range(ranges.shape[2]):
        first, end = ranges[:, :, each, :, None].unbind(2)
        seen = seen | ((keys[:, None] >= first) & (keys[:, None] < end))
    return seen


def sees_all(config: SparseConfig, positions: Tensor, lengths: Tensor) -> Tensor:
    """(B, T): queries of BigBird that see their whole sequence: global ones, and those of short sequences."""
    block, last = positions // config.block, (lengths - 1) // config.block
    return (lengths <= config.whole(causal=False)) | (block == 0) | (block == last)


def _bigbird(config: SparseConfig, positions: Tensor, lengths: Tensor, causal: bool) -> Tensor:
    block = positions // config.block
    if causal:  # three blocks up to the query's own one; no last block, which nobody knows yet
        low, high = (block - 2).clamp(min=1), block
        blocks = [(torch.zeros_like(block), torch.ones_like(block)), (low, high + 1)]
        end = low
    else:
        last = (lengths - 1) // config.block
        low, high = (block - 1).clamp(min=1), torch.minimum(block + 1, last - 1)
        blocks = [(torch.zeros_like(block), torch.ones_like(block)), (low, high + 1), (last, last + 1)]
        end = last
    blocks += _random_blocks(config, block, low, high, end)
    ranges = torch.stack([torch.stack(pair, -1) for pair in blocks], 2)  # B T R 2, in blocks
    ranges[..., 1] = torch.maximum(ranges[..., 0], ranges[..., 1])
    ranges = ranges * config.block
    if causal:
        return ranges
    whole = torch.zeros_like(ranges)
    whole[:, :, 0, 1] = lengths
    return torch.where(sees_all(config, positions, lengths)[:, :, None, None], whole, ranges)


def _random_blocks(
    config: SparseConfig, block: Tensor, low: Tensor, high: Tensor, end: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The random key blocks of each query block (B, T), as ranges: among 1, 2, … before `end`, outside low … high.

    Each comes from a part of its own of all these blocks, so that no two are the same; empty if there are too few. They
    follow from the seed by a hash, which costs nothing to repeat for some rows or for all.
    """
    if config.seed is None:
        return []
    inside = (torch.minimum(high, end - 1) - low + 1).clamp(min=0)
    free, found = (end - 1 - inside).clamp(min=0), []
    for each in range(config.random):
        start, stop = each * free // config.random, (each + 1) * free // config.random
        mix = (block * 0x9E3779B1 + each * 0x85EBCA77 + config.seed * 0xC2B2AE3D) & 0xFFFFFFFF
        mix = ((mix ^ (mix >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
        mix = mix ^ (mix >> 13)
        place = 1 + start + mix % (stop - start).clamp(min=1)
        place = place + torch.where(place >= low, inside, 0)
        found.append((place, place + (stop > start)))
    return found
