"""FlexAttention over tiles: a block mask made from the tiles, so that hidden ones cost nothing. For accelerators.

Letters: B batch, T tokens, H heads, D width of a head, N tiles of a sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from headway.kernels.sparse.tiles import FLEX_TILE, Tiles

Visible = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Whether a pair is visible, by the numbers of row, head, query and key."""
Add = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""A score with what is added to it, by the same numbers."""


def block_mask(tiles: Tiles, visible: Visible) -> BlockMask:
    """`visible` is asked about the pairs of tiles that are seen and not known to be full."""
    full = torch.zeros_like(tiles.seen) if tiles.full is None else tiles.full
    part, whole = _ordered(tiles.seen & ~full), _ordered(full)
    lengths = (tiles.length, tiles.length)
    return BlockMask.from_kv_blocks(*part, *whole, BLOCK_SIZE=tiles.size, mask_mod=visible, seq_lengths=lengths)


def _ordered(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """How many tiles (B, 1, N) of keys each tile of queries has, and their numbers (B, 1, N, N), the others last."""
    order = tiles.int().sort(dim=-1, descending=True, stable=True).indices
    return tiles.sum(-1, dtype=torch.int32)[:, None], order.int()[:, None].contiguous()


@cache
def _compiled() -> Any:
    """Uncompiled, FlexAttention computes all pairs."""
    return torch.compile(flex_attention)


def flex_attention_over(
    mask: BlockMask, add: Add | None, q: Tensor, k: Tensor, v: Tensor, scale: float, dropout: float
) -> Tensor:
    """Attention output (B, H, T, D). There is no dropout: what needs it takes another kernel."""
    assert not dropout
    attend = flex_attention if torch.compiler.is_compiling() or q.device.type == "cpu" else _compiled()
    out: Tensor = attend(q, k, v, score_mod=add, block_mask=mask, scale=scale)
    return out


def make_flex(
    tiles: Tiles,
    ranges: Tensor,
    positions: Tensor,
    attention_mask: Tensor | None,
    slopes: Tensor | None = None,
    repeats: Tensor | None = None,
    first: int = 0,
) -> Callable[..., Tensor]:
    """The kernel of a pattern: keys in `ranges` (B, T, R, 2) of positions (B, T), of the same sequence.

    Ranges of a causal pattern end with the query, so nothing else says what is later.
    `slopes` (H,) are those of ALiBi. Queries count keys at positions before `first` `repeats` (B, T) times.
    """
    rows = len(positions) > 1
    below, above = (part.int().contiguous() for part in ranges.unbind(-1))
    positions = positions.int()

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = b if rows else 0
        place = positions[row, j]
        seen = (place >= below[row, i, 0]) & (place < above[row, i, 0])
        for each in range(1, below.shape[2]):
            seen = seen | ((place >= below[row, i, each]) & (place < above[row, i, each]))
        if attention_mask is not None:
            seen = seen & (attention_mask[row, i] == attention_mask[row, j]) & (attention_mask[row, j] != 0)
        return seen | (i == j)

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = b if rows else 0
        if slopes is not None:
            score = score - slopes[h] * (positions[row, i] - positions[row, j]).abs()
        if repeats is not None:
            score = score + torch.where(positions[row, j] < first, repeats[row, i], 1).log()
        return score

    plain = slopes is None and repeats is None
    return partial(flex_attention_over, block_mask(tiles, visible), None if plain else add)


def flex_over_bias(bias: Tensor, size: int = FLEX_TILE) -> Callable[..., Tensor]:
    """Attention with a float bias (B, 1 or H, T, T) that is known for all pairs; tiles of -inf cost nothing."""
    length, rows, heads = bias.shape[-1], len(bias) > 1, bias.shape[1] > 1
    opened = (bias > -torch.inf).any(1)
    rest = -length % size
    seen = F.pad(opened, (0, rest, 0, rest)).unflatten(2, (-1, size)).unflatten(1, (-1, size)).any(2).any(-1)

    def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return opened[b if rows else 0, i, j]

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + bias[b if rows else 0, h if heads else 0, i, j]

    return partial(flex_attention_over, block_mask(Tiles(size, length, seen, None), visible), add)
