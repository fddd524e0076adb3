"""A diffusion transformer as one would write it by hand with torch (Peebles & Xie 2023): the peer of headway in step.

SDPA, one product for queries, keys and values, one for all shifts, scales and gates of a block.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulate = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulate(condition)[:, None].chunk(6, -1)
        y = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + gate1 * self.out(y)
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


class PlainDiT(nn.Module):
    def __init__(self, channels: int, side: int, patch: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patch, self.width = patch, width
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.positions = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.modulate, self.output = nn.Linear(width, 2 * width), nn.Linear(width, channels * patch**2)

    def forward(self, images: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        waves = torch.exp(-math.log(10_000) * torch.arange(128, device=images.device) / 128)
        angles = 1000 * times[:, None] * waves
        condition = F.silu(self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.classes(classes))
        x = self.embed(images)
        rows = x.shape[2]
        x = x.flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulate(condition)[:, None].chunk(2, -1)
        x = self.output(self.norm(x) * (1 + scale) + shift)
        x = x.unflatten(2, (-1, self.patch, self.patch)).unflatten(1, (rows, rows))
        return x.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def plain_loss(model: nn.Module, images: Tensor, times: Tensor, classes: Tensor) -> Tensor:
    """The mean squared error of v (Salimans & Ho 2022) on a cosine schedule."""
    x = images.float() / 127.5 - 1
    noise = torch.randn_like(x)
    angle = times[:, None, None, None] * math.pi / 2
    alpha, sigma = angle.cos(), angle.sin()
    return F.mse_loss(model(alpha * x + sigma * noise, times, classes).float(), alpha * noise - sigma * x)
