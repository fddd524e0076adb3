"""What can go wrong in a step, noticed in that step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from headway.errors import DivergedError

DECAY = 0.98
"""Share of the past in the usual loss: it looks back some fifty steps."""
MIN_STEPS = 50
"""Steps before a loss can be unusual."""
SPIKE_FACTOR = 8.0
"""A spike stands out by so many times the usual distance from the usual loss."""


class LossEMA(NamedTuple):
    """What losses have lately been like."""

    loss: float = 0.0
    deviation: float = 0.0
    steps: int = 0

    def is_spike(self, loss: float) -> bool:
        return self.steps >= MIN_STEPS and loss - self.loss > SPIKE_FACTOR * self.deviation

    def updated(self, loss: float) -> LossEMA:
        """With one more step; a spike tells nothing of what is usual."""
        if self.is_spike(loss):
            return self
        keep = min(DECAY, self.steps / (self.steps + 1))
        mean = keep * self.loss + (1 - keep) * loss
        return LossEMA(mean, keep * self.deviation + (1 - keep) * abs(loss - mean), self.steps + 1)


def non_finite(step: int, loss: float, norm: float, gradients: Iterable[tuple[str, Tensor | None]]) -> str:
    """Empty if all is well, otherwise what is not finite and where it shows first."""
    if math.isfinite(loss) and math.isfinite(norm):
        return ""
    bad = (name for name, gradient in gradients if gradient is not None and not bool(gradient.isfinite().all()))
    return f"step {step}: loss {loss}, first gradient that is not finite: {next(bad, 'none')}"


def diverged(what: str) -> DivergedError:
    return DivergedError(
        "T001", what, "lower train.lr, lengthen train.warmup, or set train.clip; or train.on_nan=rewind"
    )
