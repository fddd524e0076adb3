"""Positions from the attention mask, and every way to tell a model of them.

Letters: B batch, T queries, S keys, H heads, D width of a head, M width of the model.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import DistancesConfig, RelativeConfig, RopeConfig, StackConfig
from headway.kernels.distances import distance_rows
from headway.model.norms import LayerNorm


def token_positions(attention_mask: Tensor) -> Tensor:
    """Position of each token in its own sequence, whatever the padding or packing.

    `attention_mask` (B, T) is true for real tokens; as integers it holds the segment ids of packed sequences (1, 2, …
    from left to right). Padding gets position 0, which is never used.
    """
    real = attention_mask != 0
    place = real.cumsum(-1) - 1  # counted over the whole row
    if attention_mask.dtype != torch.bool:
        sequence = attention_mask.cummax(-1).values
        first = torch.ones_like(real)
        first[:, 1:] = sequence[:, 1:] > sequence[:, :-1]
        place = place - (place * first).cummax(-1).values  # … and then from the start of each sequence
    return place.clamp(min=0)


def make_embedding(rows: int, width: int) -> nn.Embedding:
    """An embedding that torch initialises, except on the meta device: there torch would import its compiler first."""
    empty = torch.empty(0)
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width) if empty.is_meta else None)


def sinusoidal(positions: Tensor, width: int, layout: str = "interleaved", base: float = 10_000.0) -> Tensor:
    """r_{n,i} = sin(n / base^{i/M}) for even i, cos(n / base^{(i-1)/M}) for odd i (Vaswani et al. 2017)."""
    # in float32, angles are already off by 3e-5 at position 512
    exact = torch.float32 if positions.device.type == "mps" else torch.float64
    even = torch.arange(0, width, 2, device=positions.device, dtype=exact)
    angles = positions[..., None].to(exact) * base ** (-even / (width - 2 if layout == "fairseq" else width))
    waves = torch.stack([angles.sin(), angles.cos()], -1 if layout == "interleaved" else -2)
    return waves.flatten(-2)[..., :width].float()


def grid_sinusoidal(side: int, width: int, device: torch.device) -> Tensor:
    """(side², M) for the patches of an image, row by row: half of the width tells the column, half the row."""
    rows, columns = torch.meshgrid(*[torch.arange(side, device=device)] * 2, indexing="ij")
    return torch.cat([sinusoidal(place.flatten(), width // 2, "halves") for place in (columns, rows)], -1)


def rotary_angles(config: RopeConfig, width: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines (B, 1, T, D/2) of the angles by which `rotate` turns queries and keys."""
    rotated = config.rotated(width)
    steps = torch.arange(0, rotated, 2, device=positions.device, dtype=torch.float32)
    frequency = F.pad(1.0 / config.theta ** (steps / max(1, rotated)), (0, width // 2 - len(steps)))
    if config.scaling == "linear":
        frequency = frequency / config.factor
    elif config.scaling == "llama3":
        frequency = _llama3_frequency(config, frequency)
    angles = positions[:, None, :, None].float() * frequency
    return angles.cos(), angles.sin()


def _llama3_frequency(config: RopeConfig, frequency: Tensor) -> Tensor:
    """Low frequencies are divided by `factor`, high ones stay, and those between are interpolated."""
    turns = config.original_length * frequency / (2 * math.pi)  # periods in the original context
    blend = (turns - config.low_factor) / (config.high_factor - config.low_factor)
    blend = blend.clamp(0.0, 1.0)
    return frequency * (blend + (1 - blend) / config.factor)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair (x_i, x_{i+D/2}) by its angle; q·k then depends only on the distance."""
    cos, sin = (a.to(x.dtype) for a in angles)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def alibi_slopes(n_heads: int) -> list[float]:
    """Geometric slopes. If the number of heads is no power of two, every other slope of the next power fills up."""
    whole = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    between = [2 ** (-4 * (i + 1) / whole) for i in range(0, 2 * whole, 2)]
    return slopes + between[: n_heads - whole]


def alibi_bias(n_heads: int, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """(B, H, T, S): -slope · distance."""
    slopes = torch.tensor(alibi_slopes(n_heads), device=q_pos.device)
    distance = (q_pos[:, :, None] - k_pos[:, None, :]).abs()
    return -slopes[:, None, None] * distance[:, None]


class Distances(nn.Module):
    """DeBERTa: vectors of distances, which every block projects as it projects its tokens."""

    def __init__(self, config: DistancesConfig, stack: StackConfig) -> None:
        super().__init__()
        self.config, self.dropout = config, stack.dropout
        self.table = make_embedding(config.rows, stack.d_model)
        self.norm = LayerNorm(stack.d_model, stack.norm_eps) if config.norm else None

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors (P, M), and for each pair of a query and a key its row (B, T, S)."""
        vectors = self.table.weight if self.norm is None else self.norm(self.table.weight)
        rows = distance_rows(q_pos, k_pos, self.config.buckets, self.config.max_distance)
        return F.dropout(vectors, self.dropout, self.training), rows


class RelativeBias(nn.Module):
    """T5: one table per stack, looked up once per pass, added to the attention scores of every layer."""

    def __init__(self, config: RelativeConfig, n_heads: int, causal: bool) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.table = make_embedding(config.buckets, n_heads)

    def forward(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """(B, H, T, S) from positions, not from lengths, which would be wrong with a KV cache."""
        bias: Tensor = self.table(self.bucket(k_pos[:, None, :] - q_pos[:, :, None]))
        return bias.permute(0, 3, 1, 2)

    def bucket(self, distance: Tensor) -> Tensor:
        """Small distances have a bucket each; larger distances share buckets, in logarithmic steps."""
        count, side = self.config.buckets, torch.zeros_like(distance)
        if self.causal:
            distance = (-distance).clamp(min=0)
        else:
            count //= 2
            side, distance = (distance > 0) * count, distance.abs()
        exact = count // 2
        ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.config.max_distance / exact)
        far = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
        return side + torch.where(distance < exact, distance, far)
