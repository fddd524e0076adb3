"""Samples of a sound through convolutions and a linear map, with positions by a convolution, as in wav2vec 2.0.

Letters: B batch, n samples, T positions, M width of the model, C channels.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.networks.sounds import WavesConfig
from headway.front.embedded import Embedded
from headway.front.sounds import check_samples, real_positions
from headway.kernels.linear import Linear
from headway.model.masks import Layout
from headway.model.norms import LayerNorm

EPS = 1e-5
"""Of the norms between the convolutions, which no config names."""


class WaveEmbedding(nn.Module):
    """Convolutions over samples, norm and linear map; then positions, and a norm where the family has one."""

    def __init__(self, config: WavesConfig, width: int) -> None:
        super().__init__()
        self.config = config
        sizes = zip(pairwise((1, *config.channels)), config.convolutions, strict=True)
        self.convolutions = nn.ModuleList(nn.Conv1d(*ab, *kernel, bias=config.bias) for ab, kernel in sizes)
        normed = config.channels[:1] if config.norm_in == "first" else config.channels
        self.norms = nn.ModuleList(LayerNorm(channels, EPS) for channels in normed)
        self.project_norm = LayerNorm(config.channels[-1], config.norm_eps) if config.project_norm else None
        self.project = Linear(config.channels[-1], width)
        self.place = Place(width, config.place_kernel, config.place_groups)
        self.norm = LayerNorm(width, config.norm_eps) if config.norm else None
        self.mask = nn.Parameter(torch.zeros(width)) if config.mask_token else None

    def forward(self, samples: Tensor, attention_mask: Tensor | None = None, masked: Tensor | None = None) -> Embedded:
        """samples (B, n). Padding is held at zero, so that it never leaks in; `masked` (B, T) hides positions."""
        check_samples(self.config, samples)
        x = samples[:, None]
        for i, convolution in enumerate(self.convolutions):
            x = convolution(x)
            if self.config.norm_in == "all":
                x = self.norms[i](x.transpose(1, 2)).transpose(1, 2)
            elif i == 0:
                x = _over_time(x, self.norms[0], real_positions(self.config, attention_mask, 1))
            x = F.gelu(x)
        x = x.transpose(1, 2)  # B T C
        x = self.project(x if self.project_norm is None else self.project_norm(x))
        x = F.dropout(x, self.config.project_dropout, self.training)
        if masked is not None and self.mask is not None:
            x = torch.where(masked[..., None], self.mask.to(x.dtype), x)
        real = real_positions(self.config, attention_mask)
        x = x + self.place(x if real is None else x * real[..., None])
        if self.norm is not None:
            x = self.norm(x)
        return Embedded(F.dropout(x, self.config.dropout, self.training), Layout.of(x.shape[1], real, x.device))


def _over_time(x: Tensor, norm: nn.Module, real: Tensor | None) -> Tensor:
    """Each channel of x (B, C, T) normalised over the real positions, with the weight and bias of a norm."""
    if real is None:
        return F.group_norm(x, x.shape[1], norm.weight, norm.bias, EPS)  # type: ignore[arg-type]
    share = (real / real.sum(1, keepdim=True).clamp(min=1))[:, None]  # B 1 T
    mean = (x * share).sum(2, keepdim=True)
    variance = ((x - mean).square() * share).sum(2, keepdim=True)
    return (x - mean) * (variance + EPS).rsqrt() * norm.weight[:, None] + norm.bias[:, None]  # type: ignore[index]


class Place(nn.Module):
    """Position vectors of x (B, T, M): what stands around each vector, by a grouped convolution.

    Its weight is a direction times a gain for each tap (weight normalisation; Salimans & Kingma 2016).
    """

    def __init__(self, width: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=groups)
        self.gain = nn.Parameter(torch.ones(kernel))

    def forward(self, x: Tensor) -> Tensor:
        direction = self.convolution.weight
        weight = direction * (self.gain / direction.float().norm(dim=(0, 1)).clamp(min=1e-12)).to(direction.dtype)
        taps = self.convolution
        y = F.conv1d(x.transpose(1, 2), weight, taps.bias, padding=len(self.gain) // 2, groups=taps.groups)
        return F.gelu(y[..., : x.shape[1]]).transpose(1, 2)
