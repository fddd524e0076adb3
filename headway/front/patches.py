"""Images and spectrograms as patches, each a vector.

Letters: B batch, T tokens, M width of the model, C channels.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import PatchesConfig
from headway.errors import DataError
from headway.front.embedded import Embedded
from headway.kernels.linear import Linear
from headway.model.masks import Layout
from headway.model.norms import LayerNorm
from headway.model.positions import grid_sinusoidal


class PatchEmbedding(nn.Module):
    """Patches through one linear map, a class token in front, positions (ViT), a norm where CLIP has one."""

    def __init__(self, config: PatchesConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.project = Linear(config.channels * math.prod(config.patch_shape), width, bias=config.bias)
        self.first = nn.Parameter(torch.zeros(width)) if config.class_token else None
        self.second = nn.Parameter(torch.zeros(width)) if config.distillation else None
        self.mask = nn.Parameter(torch.zeros(width)) if config.mask_token else None
        learned = config.positions == "learned"
        self.positions = nn.Parameter(torch.zeros(config.leading + config.count, width)) if learned else None
        self.norm = LayerNorm(width, config.norm_eps) if config.norm else None
        self.any_size = False
        """Whether square images of other sizes are read too: a training that crops asks for it."""

    def forward(self, images: Tensor, masked: Tensor | None = None) -> Embedded:
        """images (B, C, height, width); `masked` (B, patches) replaces patches by the mask token."""
        (high, wide), expected = self.config.patch_shape, self.config.shape
        size = images.shape[-1]
        fits = self.any_size and tuple(images.shape[1:]) == (expected[0], size, size) and size >= wide
        if not fits and tuple(images.shape[1:]) != expected:
            raise DataError("D001", f"images of shape {tuple(images.shape[1:])}, the model takes {expected}")
        rows, columns = images.shape[2] // high, size // wide  # pixels that fill no patch are left out
        grid = images[:, :, : rows * high, : columns * wide].unflatten(3, (-1, wide)).unflatten(2, (-1, high))
        x = self.project(grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))  # B patches M
        if masked is not None and self.mask is not None:
            x = torch.where(masked[..., None], self.mask.to(x.dtype), x)
        leading = [token.to(x.dtype).expand(len(x), 1, -1) for token in (self.first, self.second) if token is not None]
        x = torch.cat([*leading, x], 1) if leading else x
        x = x + self._positions(columns, x).to(x.dtype)
        if self.norm is not None:
            x = self.norm(x)
        x = F.dropout(x, self.config.dropout, self.training)
        return Embedded(x, Layout.of(x.shape[1], None, x.device))

    def _positions(self, side: int, x: Tensor) -> Tensor:
        """(tokens, M) for side × side patches; fixed ones are zeros for the class token."""
        if self.positions is not None:
            return resampled(self.positions, side, self.config.leading) if self.any_size else self.positions
        grid = grid_sinusoidal(side, x.shape[2], x.device)
        return F.pad(grid, (0, 0, x.shape[1] - len(grid), 0))


def resampled(positions: Tensor, side: int, before: int = 1) -> Tensor:
    """Positions of `before` tokens and a square of patches, for side × side patches: bicubic, as of DINOv2 and DeiT."""
    old = math.isqrt(len(positions) - before)
    if old == side:
        return positions
    first, square = positions[:before], positions[before:].float().T.unflatten(1, (old, old))[None]  # 1 width side side
    square = F.interpolate(square, size=(side, side), mode="bicubic", align_corners=False)
    return torch.cat([first, square[0].flatten(1).T.to(first.dtype)])
