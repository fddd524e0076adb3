"""The kernel of a sparse pattern over long sequences: FlexAttention where it can, else gathered tiles.

Letters: B batch, T tokens, H heads, F tiles of all sequences, Q and K tiles of a group, S tile size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import StackConfig
from headway.kernels.sparse.flex import make_flex
from headway.kernels.sparse.gathered import Group, gathered_attention, make_groups
from headway.kernels.sparse.pattern import Seen
from headway.kernels.sparse.tiles import FLEX_TILE, Tiles, tile_size

FLEX_WIDTHS = (16, 32, 64, 128, 256)
"""Widths of a head that FlexAttention is known to be fast with."""
FLEX_DEVICES = ("cuda",)


class Tokens(NamedTuple):
    """Where tokens (B, T) are, or tokens of tiles (Q, S)."""

    positions: Tensor
    attention_mask: Tensor | None
    slots: Tensor


BiasOf = Callable[[Tokens, Tokens, Seen], Tensor]
"""The bias of queries (Q, S) and keys (Q, K·S) by its definition: (Q, 1 or H, S, K·S)."""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # tiles depend on the values of a mask, and some are cached
def sparse_kernel(
    config: StackConfig, tokens: Tokens, bias_of: BiasOf, slopes: tuple[float, ...] | None, batch: int, flexible: bool
) -> Callable[..., Tensor]:
    """`flexible`: there is nothing in the bias but the pattern and ALiBi with its `slopes`, and no dropout."""
    positions, mask = tokens.positions, tokens.attention_mask
    if flexible and positions.device.type in FLEX_DEVICES and config.head_width in FLEX_WIDTHS:
        if mask is None:
            return _unpadded_flex(config, positions.shape[1], positions.device, slopes)
        return _flex(config, positions, mask, slopes)
    seen = Seen.of(config, positions, mask)
    assert seen is not None
    tiles = Tiles.of(seen.ranges, positions, mask, tile_size(config))
    groups = make_groups(tiles, config.n_heads * batch // len(tiles.seen))
    parts, own = _in_tiles(tokens, seen, tiles.size)
    biases = [_group_bias(bias_of, parts, own, group) for group in groups]
    return partial(gathered_attention, groups, biases, tiles.size)


def _in_tiles(tokens: Tokens, seen: Seen, size: int) -> tuple[Tokens, Seen]:
    """Tokens by tiles (F, S); what fills up the last tile of a sequence is padding."""
    rows, length = tokens.positions.shape
    filling = -length % size
    mask = tokens.attention_mask
    mask = torch.ones_like(tokens.positions, dtype=torch.bool) if mask is None else mask

    def tiled(x: Tensor) -> Tensor:
        padding = [0] * (2 * (x.dim() - 2)) + [0, filling]
        return F.pad(x.expand(rows, *x.shape[1:]), padding).reshape(-1, size, *x.shape[2:])

    slots = torch.arange(length + filling, device=mask.device).expand(rows, -1).reshape(-1, size)
    repeats = None if seen.repeats is None else tiled(seen.repeats).clamp(min=1)
    return Tokens(tiled(tokens.positions), tiled(mask), slots), Seen(tiled(seen.ranges), repeats)


def _group_bias(bias_of: BiasOf, tokens: Tokens, seen: Seen, group: Group) -> Tensor:
    """The same bias as that of all pairs, for the pairs of some tiles."""
    assert tokens.attention_mask is not None
    q = Tokens(*(part[group.queries] for part in tokens if part is not None))
    mask = tokens.attention_mask[group.keys] * group.valid[..., None]
    k = Tokens(tokens.positions[group.keys].flatten(1), mask.flatten(1), tokens.slots[group.keys].flatten(1))
    repeats = None if seen.repeats is None else seen.repeats[group.queries]
    return bias_of(q, k, Seen(seen.ranges[group.queries], repeats))


@lru_cache(maxsize=8)
def _unpadded_flex(
    config: StackConfig, length: int, device: torch.device, slopes: tuple[float, ...] | None
) -> Callable[..., Tensor]:
    with torch.inference_mode(False):  # or training could not use what an evaluation has made
        return _flex(config, torch.arange(length, device=device)[None], None, slopes)


def _flex(
    config: StackConfig, positions: Tensor, mask: Tensor | None, slopes: tuple[float, ...] | None
) -> Callable[..., Tensor]:
    seen = Seen.of(config, positions, mask)
    assert seen is not None
    tiles = Tiles.of(seen.ranges, positions, mask, FLEX_TILE)
    by_head = None if slopes is None else torch.tensor(slopes, device=positions.device)
    first = config.sparse.block if config.sparse else 0
    return make_flex(tiles, seen.ranges, positions, mask, by_head, seen.repeats, first)
