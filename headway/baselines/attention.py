"""Attention of a recurrent decoder: scores of its state against the states of the source.

Letters: B batch, T queries, S source tokens, M width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


class Additive(nn.Module):
    """v · tanh(W q + U k): a small network compares the two (Bahdanau et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Keys (B, S, M), computed once for all queries."""
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Queries (B, T, M) to attention scores (B, T, S)."""
        scores: Tensor = self.score(torch.tanh(self.query(queries)[:, :, None] + keys[:, None]))
        return scores[..., 0]


class Multiplicative(nn.Module):
    """q · k, or q · W k where `general` (Luong et al. 2015)."""

    def __init__(self, width: int, general: bool) -> None:
        super().__init__()
        self.key: nn.Module = nn.Linear(width, width, bias=False) if general else nn.Identity()

    def keys(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT


def make_attention(kind: Literal["additive", "dot", "general"], width: int) -> Additive | Multiplicative:
    return Additive(width) if kind == "additive" else Multiplicative(width, general=kind == "general")
