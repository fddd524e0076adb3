"""A table of vectors."""

from __future__ import annotations

import torch
from torch import nn


def make_embedding(rows: int, width: int) -> nn.Embedding:
    """Filled as torch does it, but not where it is only a shape: for that torch would import its compiler first."""
    empty = torch.empty(0)
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width) if empty.is_meta else None)
