"""Norms that keep the dtype of their input.

Under autocast, torch's own norms return float32 and double the memory traffic of the residual stream, which is most of
a step's. The sums inside these norms are still in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import StackConfig


class LayerNorm(nn.Module):
    """(x - mean) / √(variance + eps) · weight + bias (Ba et al. 2016)."""

    def __init__(self, width: int, eps: float, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps).to(x.dtype)


class PlainNorm(nn.Module):
    """LayerNorm without weight and bias, where a modulation brings both."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], eps=self.eps).to(x.dtype)


class RMSNorm(nn.Module):
    """x / √(mean x² + eps) · (weight + offset) (Zhang & Sennrich 2019)."""

    def __init__(self, width: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.eps, self.offset = eps, offset
        self.weight = nn.Parameter(torch.full((width,), 1.0 - offset))

    def forward(self, x: Tensor) -> Tensor:
        if not self.offset:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps).to(x.dtype)
        weight = self.weight.float() + self.offset  # in half precision 1 + w would lose most of w
        return F.rms_norm(x.float(), weight.shape, weight, self.eps).to(x.dtype)


class SoundNorm(nn.Module):
    """GroupNorm of one group: the statistics of a whole sound (Wu & He 2018), without those of its padding."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (B, C, T); `real` (B, T) is false for padding."""
        if real is None:
            return F.group_norm(x, 1, self.weight, self.bias, self.eps).to(x.dtype)
        share = (real / real.sum(1, keepdim=True).clamp(min=1) / x.shape[1])[:, None]  # B 1 T
        mean = (x * share).sum((1, 2), keepdim=True)
        variance = ((x - mean).square() * share).sum((1, 2), keepdim=True)
        return ((x - mean) * (variance + self.eps).rsqrt() * self.weight[:, None] + self.bias[:, None]).to(x.dtype)


class DynamicTanh(nn.Module):
    """tanh(alpha · x) · weight + bias: no statistics at all, and it trains as well (Zhu et al. 2025)."""

    def __init__(self, width: int, alpha: float = 0.5) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.alpha * x) * self.weight + self.bias).to(x.dtype)


def make_norm(config: StackConfig, width: int | None = None) -> nn.Module:
    """A norm of the residual stream, or one of another width, such as that of a head."""
    if config.norm == "layernorm" and config.modulation and width is None:
        return PlainNorm(config.norm_eps)
    width = width or config.d_model
    if config.norm == "rmsnorm":
        return RMSNorm(width, config.norm_eps, config.norm_offset)
    return DynamicTanh(width) if config.norm == "dyt" else LayerNorm(width, config.norm_eps, config.norm_bias)
