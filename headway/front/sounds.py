"""Sounds through convolutions over time: mel frames, or the samples themselves.

Letters: B batch, T tokens, M width of the model, C channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import FramesConfig
from headway.config.networks.sounds import OverSamples, SamplesConfig
from headway.errors import DataError
from headway.front.embedded import Embedded, add_positions, make_positions
from headway.model.masks import Layout
from headway.model.norms import SoundNorm


class FrameEmbedding(nn.Module):
    """Mel frames through two convolutions over time, the second with stride two (Radford et al. 2022)."""

    def __init__(self, config: FramesConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv1d(config.channels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.positions = make_positions(config.positions, width)

    def forward(self, frames: Tensor, attention_mask: Tensor | None = None) -> Embedded:
        """frames (B, C, time). Padding is set to zero before each convolution, so that it never leaks in."""
        if frames.shape[1] != self.config.channels:
            raise DataError("D001", f"{frames.shape[1]} mel channels, the model takes {self.config.channels}")
        hold = None if attention_mask is None else (attention_mask != 0)[:, None]
        x = F.gelu(self.conv1(frames if hold is None else frames * hold))
        x = F.gelu(self.conv2(x if hold is None else x * hold)).transpose(1, 2)  # B time/2 M
        layout = Layout.of(x.shape[1], None if attention_mask is None else attention_mask[:, ::2], x.device)
        x, repeated_positions = add_positions(self.positions, x, layout)
        return Embedded(F.dropout(x, self.config.dropout, self.training), layout, repeated_positions)


def check_samples(config: OverSamples, samples: Tensor) -> None:
    """Refuse what is no batch of sounds, or too short for a single position."""
    least = config.span()[0]
    if samples.ndim != 2 or samples.shape[1] < least:
        message = f"samples of shape {tuple(samples.shape)}, the model takes (B, n), n at least {least}"
        raise DataError("D001", message)


def real_positions(
    config: OverSamples, attention_mask: Tensor | None, convolutions: int | None = None
) -> Tensor | None:
    """(B, T) after the first convolutions, or all: where the first and the last sample are real, those between are."""
    if attention_mask is None:
        return None
    (width, stride), real = config.span(convolutions), attention_mask != 0
    return (real[:, : real.shape[1] - width + 1] & real[:, width - 1 :])[:, ::stride]


class SampleEmbedding(nn.Module):
    """Samples of a sound through three convolutions over time, without padding (Jeffries et al. 2024)."""

    def __init__(self, config: SamplesConfig, width: int) -> None:
        super().__init__()
        self.config = config
        first, second, third = config.convolutions
        self.conv1, self.norm = nn.Conv1d(1, width, *first, bias=False), SoundNorm(width)
        self.conv2, self.conv3 = nn.Conv1d(width, 2 * width, *second), nn.Conv1d(2 * width, width, *third)

    def forward(self, samples: Tensor, attention_mask: Tensor | None = None) -> Embedded:
        """samples (B, n). A position is real if all its samples are, so that no padding leaks in."""
        check_samples(self.config, samples)
        x = self.norm(torch.tanh(self.conv1(samples[:, None])), real_positions(self.config, attention_mask, 1))
        x = F.gelu(self.conv3(F.gelu(self.conv2(x)))).transpose(1, 2)  # B n/384 M
        layout = Layout.of(x.shape[1], real_positions(self.config, attention_mask), x.device)
        return Embedded(F.dropout(x, self.config.dropout, self.training), layout)
