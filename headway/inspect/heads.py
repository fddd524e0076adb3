"""What attention heads look at: statistics of their maps, attention rollout, and how far each layer has seen.

Letters: L layers, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.inspect.reading.base import Grid, Token

Maps = NDArray[np.float32]

CLEAR = 0.4
"""The share of its attention that a head gives to one kind of key before it is named after that kind."""
BROAD = 0.6
"""The share of the visible keys that a head has to spread over before it counts as looking at everything."""
NEAR = 3.0
"""The mean distance up to which a head counts as looking at neighbours."""
MOST = 0.9
"""The share of a rollout that a receptive field holds."""
NAMES = {
    "previous": "the previous token",
    "next": "the next token",
    "self": "the token itself",
    "first": "the first token",
    "separator": "separators",
    "same": "the same token elsewhere",
}


@dataclass(frozen=True, kw_only=True)
class HeadStats:
    """What one head looks at, as means over the queries."""

    kind: str
    layer: int
    head: int
    entropy: float
    """Of the weights, in nats."""
    keys: float
    """Over how many keys the head spreads: the exponential of the entropy."""
    distance: float | None
    """Mean distance from query to key, in positions, or in patches; None where queries and keys are not comparable."""
    shares: dict[str, float]
    """Of the attention: to the previous, next, first and the same position, separators, and equal tokens elsewhere."""
    looks_at: str

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def head_stats(
    kind: str, maps: Maps, queries: Sequence[Token], keys: Sequence[Token], grid: Grid | None = None
) -> list[HeadStats]:
    """Of maps (L, H, T, S). `queries` and `keys` are the same tokens but in cross-attention."""
    own = maps.shape[2] == maps.shape[3] and [token.id for token in queries] == [token.id for token in keys]
    entropy = -(maps * np.log(np.clip(maps, 1e-12, None))).sum(-1)  # L H T
    visible = (maps.max((0, 1)) > 0).sum(-1)  # T
    masks = key_masks(queries, keys, own)
    if grid is not None:  # the patch before another one in the row is not before it in any other sense
        masks = {name: mask for name, mask in masks.items() if name not in ("previous", "next")}
    spread = np.exp(entropy)
    broad = (spread / np.maximum(visible, 1)).mean(-1)
    shares = {name: _share(maps, mask) for name, mask in masks.items() if mask.any()}  # L H each
    apart = (maps * distances(len(queries), len(keys), grid)).sum(-1).mean(-1) if own else None
    found: list[HeadStats] = []
    for at in np.ndindex(*maps.shape[:2]):
        each = {name: round(float(share[at]), 6) for name, share in shares.items()}
        distance = None if apart is None else float(apart[at])
        found.append(
            HeadStats(
                kind=kind,
                layer=at[0],
                head=at[1],
                entropy=float(entropy[at].mean()),
                keys=float(spread[at].mean()),
                distance=distance,
                shares=each,
                looks_at=_named(each, float(broad[at]), distance),
            )
        )
    return found


def key_masks(queries: Sequence[Token], keys: Sequence[Token], own: bool) -> dict[str, NDArray[np.bool_]]:
    """(T, S) for each kind of key: true where a key is of that kind for a query."""
    shape = (len(queries), len(keys))
    separators = np.array([token.special for token in keys]) & (np.arange(len(keys)) > 0)
    masks: dict[str, NDArray[np.bool_]] = {
        "first": np.broadcast_to(np.arange(len(keys)) == 0, shape),
        "separator": np.broadcast_to(separators, shape),
    }
    if own:
        masks |= {
            "previous": np.eye(*shape, -1, bool),
            "next": np.eye(*shape, 1, bool),
            "self": np.eye(*shape, 0, bool),
        }
        ids = np.array([-1 if token.id is None else token.id for token in keys])
        masks["same"] = (ids[:, None] == ids[None]) & (ids >= 0) & ~masks["self"]
    return masks


def distances(queries: int, keys: int, grid: Grid | None) -> NDArray[np.float64]:
    """(T, S): in positions; of patches in patches, and 0 for what is no patch."""
    if grid is None:
        apart: NDArray[np.float64] = np.abs(np.arange(queries)[:, None] - np.arange(keys)[None]).astype(np.float64)
        return apart
    places = np.stack(np.divmod(np.arange(keys) - grid.leading, grid.columns), -1).astype(np.float64)
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    apart[: grid.leading] = apart[:, : grid.leading] = 0.0
    return apart


def _share(maps: Maps, mask: NDArray[np.bool_]) -> Maps:
    """(L, H): the attention that queries give to their keys of a kind, over the queries that have such keys."""
    asked = mask.any(-1)
    share: Maps = (maps[:, :, asked] * mask[asked]).sum(-1).mean(-1)
    return share


def _named(shares: dict[str, float], broad: float, distance: float | None) -> str:
    best = max(shares, key=lambda name: shares[name], default="")
    if best and shares[best] >= CLEAR:
        return NAMES[best]
    if broad >= BROAD:
        return "everything"
    return "tokens nearby" if distance is not None and distance <= NEAR else "some tokens"


def rollout(maps: Maps) -> Maps:
    """(L, T, T): after each layer, what each position has taken from each input (Abnar & Zuidema 2020).

    The maps of the layers are multiplied, each as the mean of its heads and of the residual connection.
    """
    own = (maps.mean(1) + np.eye(maps.shape[-1], dtype=maps.dtype)) / 2
    found = [own[0]]
    for layer in own[1:]:
        found.append(layer @ found[-1])
    return np.stack(found)


def receptive_field(maps: Maps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(L, T) twice: how many positions can have reached each position after each layer; and how many it has most from.

    The second number counts the positions that hold most of the rollout, the largest first.
    """
    seen = (maps.max(1) > 0) | np.eye(maps.shape[-1], dtype=bool)
    reach = [seen[0]]
    for layer in seen[1:]:
        reach.append((layer.astype(np.float32) @ reach[-1].astype(np.float32)) > 0)
    held = np.sort(rollout(maps), -1)[..., ::-1].cumsum(-1)
    return np.stack(reach).sum(-1), 1 + (held < MOST).sum(-1)
