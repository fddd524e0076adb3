"""Another image size for a vision model: its grid of positions is resampled once, on loading."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from headway.errors import DataError
from headway.model.embed import PatchEmbedding
from headway.model.model import Model


@torch.no_grad()
def resize_images(model: Model, image: int) -> Model:
    """The model for square images of another size, changed in place; bicubic, as DINOv2 and DeiT were made to be."""
    front = getattr(model, "source", None)
    if not isinstance(front, PatchEmbedding):
        raise DataError("D001", "only a model that reads images has an image size")
    config = replace(front.config, image=image)
    side, new_side = front.config.image // front.config.patch, config.image // config.patch
    first, grid = front.positions[:1], front.positions[1:]
    grid = grid.float().T.unflatten(1, (side, side))[None]  # 1 width side side
    grid = F.interpolate(grid, size=(new_side, new_side), mode="bicubic", align_corners=False)
    resampled = grid[0].flatten(1).T.to(first.dtype)
    front.positions = nn.Parameter(torch.cat([first, resampled]))
    front.config = config
    model.config = replace(model.config, source=config)
    return model
