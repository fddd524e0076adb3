"""The attention bias of a sparse pattern over long sequences: a kernel that computes the visible pairs alone.

Letters: B batch, T tokens, R ranges, F tiles of all sequences, Q and K tiles of a group, S tile size.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import StackConfig
from headway.kernels.sparse.flex import make_flex
from headway.kernels.sparse.gathered import Group, gathered_attention, make_groups
from headway.kernels.sparse.tiles import Tiles, tile_size
from headway.model.attention import AttentionBias
from headway.model.masks import Layout, Seen, self_attention_bias
from headway.model.positions import RelativeBias, alibi_slopes

FLEX_WIDTHS = (16, 32, 64, 128, 256)
FLEX_DEVICES = ("cuda",)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # tiles depend on the values of a mask, and some are cached
def sparse_attention_bias(
    config: StackConfig, relative: RelativeBias | None, layout: Layout, batch: int, dropout: float
) -> AttentionBias:
    """The bias of the self-attention of long sequences; `dropout` acts on attention weights."""
    device = layout.positions.device
    able = relative is None and not dropout and config.head_width in FLEX_WIDTHS
    if able and device.type in FLEX_DEVICES:
        if layout.attention_mask is None:
            return AttentionBias(kernel=_unpadded_flex(config, layout.positions.shape[1], device))
        return AttentionBias(kernel=_flex(config, layout))
    seen = Seen.of(config, layout)
    assert seen is not None
    tiles = Tiles.of(seen.ranges, layout.positions, layout.attention_mask, tile_size(config))
    groups = make_groups(tiles, config.n_heads * batch // len(tiles.seen))
    parts = _in_tiles(layout, seen, tiles.size)
    biases = [_group_bias(config, relative, *parts, group) for group in groups]
    return AttentionBias(kernel=partial(gathered_attention, groups, biases, tiles.size))


def _in_tiles(layout: Layout, seen: Seen, size: int) -> tuple[Layout, Seen]:
    """The tokens of a layout by tiles (F, S); what fills up the last tile of a sequence is padding."""
    rows, length = layout.positions.shape
    mask = torch.ones_like(layout.positions, dtype=torch.bool) if layout.attention_mask is None else layout.attention_mask

    def tiled(x: Tensor) -> Tensor:
        padding = [0] * (2 * (x.dim() - 2)) + [0, -length % size]
        return F.pad(x.expand(rows, *x.shape[1:]), padding).reshape(-1, size, *x.shape[2:])

    slots = torch.arange(-(-length // size) * size, device=mask.device).expand(rows, -1).reshape(-1, size)
    repeats = None if seen.repeats is None else tiled(seen.repeats)
    return Layout(tiled(layout.positions), tiled(mask), slots), Seen(tiled(seen.ranges), repeats)


def _group_bias(
    config: StackConfig, relative: RelativeBias | None, layout: Layout, seen: Seen, group: Group
) -> Tensor:
    """The same bias as that of all pairs, for the pairs of some tiles: (Q, 1 or H, S, K·S)."""
    assert layout.attention_mask is not None and isinstance(layout.first, Tensor)
    columns = torch.arange(group.keys.shape[1] * layout.first.shape[1], device=group.keys.device)
    mask = layout.attention_mask[group.keys] * group.valid[..., None]
    q_first = layout.first[group.queries] - columns[: layout.first.shape[1]]
    q = Layout(layout.positions[group.queries], layout.attention_mask[group.queries], q_first)
    k = Layout(layout.positions[group.keys].flatten(1), mask.flatten(1), layout.first[group.keys].flatten(1) - columns)
    own = Seen(seen.ranges[group.queries], None if seen.repeats is None else seen.repeats[group.queries])
    bias = self_attention_bias(config, relative, q, k, "fused", seen=own).tensor
    assert bias is not None
    return bias


@lru_cache(maxsize=8)
def _unpadded_flex(config: StackConfig, length: int, device: torch.device) -> Any:
    with torch.inference_mode(False):  # or training could not use what an evaluation has made
        return _flex(config, Layout.of(length, None, device))


def _flex(config: StackConfig, layout: Layout) -> Any:
    seen = Seen.of(config, layout)
    assert seen is not None
    tiles = Tiles.of(seen.ranges, layout.positions, layout.attention_mask, tile_size(config))
    slopes = torch.tensor(alibi_slopes(config.n_heads), device=layout.positions.device) if config.alibi else None
    first = config.sparse.block if config.sparse and seen.repeats is not None else 0
    return make_flex(
        tiles, seen.ranges, layout.positions, layout.attention_mask, config.causal, slopes, seen.repeats, first
    )
