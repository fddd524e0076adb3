"""What a front end gives a stack, and position vectors, which several of them add.

Letters: B batch, T tokens, M width of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.config.model import PositionConfig
from headway.errors import DataError
from headway.model.masks import Layout
from headway.model.positions import make_embedding, sinusoidal


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
        elif is_readable(layout.positions):
            length = int(layout.positions.max()) + 1
        else:
            return
        if length > self.config.length:
            raise DataError(
                "D001",
                f"the input has {length} positions, the model knows {self.config.length}",
                "cut or split the input, or train with a larger data.length",
            )


def is_readable(x: Tensor) -> bool:
    """Whether reading a value costs nothing: not while compiling, and not if a GPU would have to synchronise."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and x.numel() > 0


def add_positions(positions: Positions | None, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor | None]:
    """x plus its position vectors; and these vectors once more, if the config adds them before every block."""
    if positions is None:
        return x, None
    positions.check(layout)
    vectors = positions(layout.positions).to(x.dtype)
    return x + vectors, vectors if positions.config.every_layer else None


def make_positions(config: PositionConfig, width: int) -> Positions | None:
    return None if config.kind == "none" else Positions(config, width)
