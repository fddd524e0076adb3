"""Tiles: squares of queries and keys, and which of them hold a visible pair. No pair of tokens is looked at.

Letters: B batch, T tokens, R ranges, N tiles of a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.model import StackConfig

TILE = 64
"""Side of a tile, unless the pattern's own blocks are about as large."""

LONG = 2.5
"""A sequence is long if it has so many times the keys that one of its tiles sees: from there on tiles are faster."""
FLEX_TOKENS = 4096
"""Tokens from which FlexAttention, which is compiled, is worth it on an accelerator."""
FLEX_TILE = 128
"""Side of its tiles: with smaller ones, torch has no kernel for its backward pass on some GPUs."""


def tile_size(config: StackConfig) -> int:
    """The pattern's own block where kernels are fast with it, so that tiles hold few hidden pairs."""
    block = config.sparse.block if config.sparse else TILE
    return block if block in (32, 64, 128) else TILE


def long_from(config: StackConfig, device: torch.device) -> int | None:
    """The number of tokens from which a sequence is long, and tiles are faster than all pairs; None: no pattern.

    Nor with a softcap, which only the formula of all pairs knows.
    """
    if (config.window is None and config.sparse is None) or config.softcap is not None:
        return None
    size = tile_size(config)
    if config.sparse is not None:
        blocks = 5 + (0 if config.sparse.seed is None else config.sparse.random)
        keys = blocks * (config.sparse.block if size == config.sparse.block else config.sparse.block + size)
    else:
        assert config.window is not None
        keys = (2 - config.causal) * (config.window - 1) + 2 * size
    return max(int(LONG * keys), 0 if device.type == "cpu" else FLEX_TOKENS)


@dataclass(frozen=True)
class Tiles:
    """The tiles of a pattern over sequences of `length` tokens, the last tile being cut short."""

    size: int
    length: int
    seen: Tensor
    """(B, N, N): tiles of queries and keys with a visible pair, perhaps some without, and those on the diagonal."""
    full: Tensor | None
    """(B, N, N): tiles of which all pairs are visible; None: nobody knows."""

    @classmethod
    def of(cls, ranges: Tensor, positions: Tensor, attention_mask: Tensor | None, size: int) -> Tiles:
        """Tiles of the `ranges` (B, T, R, 2) that tokens at `positions` (B, T) see."""
        first, end = ranges.unbind(-1)
        valid = first < end
        if attention_mask is None:
            low, high = first, end - 1
            full = _count(-(-first // size), end // size - 1, valid, size) == size
        else:
            real = attention_mask != 0
            place = (real.cumsum(-1) - 1).clamp(min=0)  # of each token among the real ones of its row
            slot = torch.zeros_like(place).scatter_add_(
                1, place, torch.arange(place.shape[1], device=real.device) * real
            )
            start = (place - positions)[:, :, None]
            low, high = (_at(slot, start + each) for each in (first, end - 1))
            valid, full = valid & real[:, :, None], None
        seen = _count(low // size, high // size, valid, size) > 0
        seen = seen | torch.eye(seen.shape[1], dtype=torch.bool, device=seen.device)
        return cls(size, ranges.shape[1], seen, full)


def _at(slot: Tensor, place: Tensor) -> Tensor:
    """The slots (B, T, R) of real tokens by their number in the row."""
    index = place.clamp(0, slot.shape[1] - 1).flatten(1)
    return slot.gather(1, index).view_as(place)


def _count(low: Tensor, high: Tensor, valid: Tensor, size: int) -> Tensor:
    """(B, N, N): for each tile of queries, how many ranges of tiles low … high (B, T, R) cover each tile of keys."""
    batch, length = low.shape[:2]
    tiles = -(-length // size)
    row = torch.arange(length, device=low.device)[None, :, None] // size * (tiles + 1)
    valid = (valid & (low <= high)).int().flatten(1)
    change = torch.zeros(batch, tiles * (tiles + 1), dtype=torch.int32, device=low.device)
    change.scatter_add_(1, (row + low.clamp(0, tiles)).flatten(1), valid)
    change.scatter_add_(1, (row + (high + 1).clamp(0, tiles)).flatten(1), -valid)
    return change.view(batch, tiles, tiles + 1).cumsum(-1)[..., :tiles]
