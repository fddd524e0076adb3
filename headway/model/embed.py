"""Front ends: token ids, image patches, mel frames, samples and conditions to vectors.

Letters: B batch, T tokens, M width of the model, C channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import (
    ConditionConfig,
    FramesConfig,
    FrontConfig,
    PatchesConfig,
    PositionConfig,
    SamplesConfig,
    TokensConfig,
)
from headway.errors import DataError
from headway.kernels.linear import Linear
from headway.model.masks import Layout
from headway.model.norms import LayerNorm, SoundNorm
from headway.model.positions import grid_sinusoidal, make_embedding, sinusoidal

VOCAB_MULTIPLE = 64
"""Vocabularies are rounded up to a multiple of it, for fast matrix products on GPUs. Files and logits never show it."""


def _stream(x: Tensor) -> Tensor:
    """x in the dtype of the residual stream: half precision under autocast. Norms still sum in float32."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


@dataclass(frozen=True)
class Embedded:
    """The input of a stack."""

    x: Tensor
    """(B, T, M)"""
    layout: Layout
    repeated_positions: Tensor | None = None
    """Position vectors to add before every block, if the config says so."""


class Positions(nn.Module):
    """Position vectors: a learned table, or sinusoidal."""

    def __init__(self, config: PositionConfig, width: int) -> None:
        super().__init__()
        self.config, self.width = config, width
        if config.kind == "learned":
            self.table = make_embedding(config.length + config.offset, width)

    def forward(self, positions: Tensor) -> Tensor:
        positions = positions + self.config.offset
        if self.config.kind == "sinusoidal":
            return sinusoidal(positions, self.width, self.config.layout)
        vectors: Tensor = self.table(positions)
        return vectors

    def check(self, layout: Layout) -> None:
        """Refuse an input that is too long, before the table's index is out of range."""
        if self.config.kind != "learned":
            return
        if layout.attention_mask is None:
            length = layout.first + layout.positions.shape[1]
        elif _readable(layout.positions):
            length = int(layout.positions.max()) + 1
        else:
            return
        if length > self.config.length:
            raise DataError(
                "D001",
                f"the input has {length} positions, the model knows {self.config.length}",
                "cut or split the input, or train with a larger data.length",
            )


def _readable(x: Tensor) -> bool:
    """Whether reading a value costs nothing: not while compiling, and not if a GPU would have to synchronise."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and x.numel() > 0


def add_positions(positions: Positions | None, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor | None]:
    """x plus its position vectors; and these vectors once more, if the config adds them before every block."""
    if positions is None:
        return x, None
    positions.check(layout)
    vectors = positions(layout.positions).to(x.dtype)
    return x + vectors, vectors if positions.config.every_layer else None


def _positions(config: PositionConfig, width: int) -> Positions | None:
    return None if config.kind == "none" else Positions(config, width)


class TokenEmbedding(nn.Module):
    """Token, position and token-type vectors added up, then norm and dropout where the family has them."""

    def __init__(self, config: TokensConfig, width: int) -> None:
        super().__init__()
        self.config = config
        rows = -(-config.vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        self.table = make_embedding(rows, width)
        self.positions = _positions(config.positions, width)
        self.segments = make_embedding(config.segments, width) if config.segments else None
        self.norm = LayerNorm(width, config.norm_eps) if config.norm else None

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
    ) -> Embedded:
        """`layout` is given when a cache places the tokens; otherwise it follows from `attention_mask`."""
        if _readable(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.config.vocab:
            raise DataError(
                "D001",
                f"token ids {int(ids.min())} … {int(ids.max())}, the vocabulary has {self.config.vocab}",
            )
        layout = layout or Layout.of(ids.shape[1], attention_mask, ids.device)
        x = self.table(ids)
        if self.config.scale != 1.0:
            x = x * self.config.scale
        if self.segments is not None:
            x = x + (self.segments.weight[0] if token_type_ids is None else self.segments(token_type_ids))
        x, repeated_positions = add_positions(self.positions, x, layout)
        x = _stream(x)
        if self.norm is not None:
            x = self.norm(x)
        return Embedded(F.dropout(x, self.config.dropout, self.training), layout, repeated_positions)


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


class FrameEmbedding(nn.Module):
    """Mel frames through two convolutions over time, the second with stride two (Radford et al. 2022)."""

    def __init__(self, config: FramesConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv1d(config.channels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.positions = _positions(config.positions, width)

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
        if samples.ndim != 2 or samples.shape[1] < self.config.span()[0]:
            shortest = f"the model takes (B, n), n at least {self.config.span()[0]}"
            raise DataError("D001", f"samples of shape {tuple(samples.shape)}, {shortest}")
        x = self.norm(torch.tanh(self.conv1(samples[:, None])), self._real(attention_mask, 1))
        x = F.gelu(self.conv3(F.gelu(self.conv2(x)))).transpose(1, 2)  # B n/384 M
        layout = Layout.of(x.shape[1], self._real(attention_mask, 3), x.device)
        return Embedded(F.dropout(x, self.config.dropout, self.training), layout)

    def _real(self, attention_mask: Tensor | None, convolutions: int) -> Tensor | None:
        """(B, T) after the first convolutions: where the first and the last sample are real, those between are."""
        if attention_mask is None:
            return None
        (width, stride), real = self.config.span(convolutions), attention_mask != 0
        return (real[:, : real.shape[1] - width + 1] & real[:, width - 1 :])[:, ::stride]


class ConditionEmbedding(nn.Module):
    """A time and a class as one vector (Peebles & Xie 2023)."""

    def __init__(self, config: ConditionConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.time1, self.time2 = Linear(config.frequencies, width), Linear(width, width)
        self.classes = make_embedding(config.classes + 1, width)

    def forward(self, times: Tensor, classes: Tensor) -> Tensor:
        """times (B,) from 0 to 1, and class numbers (B,), of which the last one is no class; to (B, M)."""
        waves = sinusoidal(1000 * times, self.config.frequencies, "halves").to(self.time1.weight.dtype)
        return F.silu(self.time2(F.silu(self.time1(waves))) + self.classes(classes))


Front = TokenEmbedding | PatchEmbedding | FrameEmbedding | SampleEmbedding


def make_front(config: FrontConfig, width: int) -> Front:
    if isinstance(config, TokensConfig):
        return TokenEmbedding(config, width)
    if isinstance(config, SamplesConfig):
        return SampleEmbedding(config, width)
    return PatchEmbedding(config, width) if isinstance(config, PatchesConfig) else FrameEmbedding(config, width)
