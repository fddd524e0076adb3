"""Numbers on their way to a page: attention maps as bytes, other numbers with few decimals."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from headway.inspect.heads import Maps

SIDE = 40
"""Rows and columns of a small picture of a map; longer sequences are pooled, and the largest weight is kept."""


def packed_maps(maps: Maps) -> dict[str, Any]:
    """Weights from 0 to 1 as 16-bit numbers, little-endian: exact to a hundredth of a per mille."""
    return _packed(np.round(np.clip(maps, 0, 1) * 65535).astype("<u2"))


def packed_thumbs(maps: Maps) -> dict[str, Any]:
    """Small pictures of maps (L, H, T, S), a byte a cell."""
    size = tuple(min(side, SIDE) for side in maps.shape[-2:])
    pooled = F.adaptive_max_pool2d(torch.from_numpy(np.ascontiguousarray(maps)), size).numpy()
    return _packed(np.round(np.clip(pooled, 0, 1) * 255).astype("u1"))


def packed_picture(picture: NDArray[np.uint8]) -> dict[str, Any]:
    """A picture (channels, height, width) as bytes."""
    return _packed(picture)


def _packed(values: NDArray[Any]) -> dict[str, Any]:
    return {"shape": list(values.shape), "data": base64.b64encode(values.tobytes()).decode()}


def short(values: Any, digits: int = 4) -> Any:
    """Numbers for a picture, as lists."""
    array = values.detach().float().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    return np.round(array.astype(np.float64), digits).tolist()
