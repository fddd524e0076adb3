"""What a whole sequence is conditioned on, as one vector.

Letters: B batch, M width of the model.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import ConditionConfig
from headway.kernels.linear import Linear
from headway.model.positions import make_embedding, sinusoidal


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
