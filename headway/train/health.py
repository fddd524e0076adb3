"""Checks of every training step: losses and gradients that are not finite, losses that spike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from headway.errors import DivergedError

DECAY = 0.98
"""Weight of the past in the averages: they cover about fifty steps."""
MIN_STEPS = 50
"""No loss counts as a spike before this many steps."""
SPIKE_FACTOR = 8.0
"""A spike exceeds the average loss by this many average deviations."""


class LossEMA(NamedTuple):
    """Exponential moving averages of the training loss and of its deviation, to detect spikes."""

    loss: float = 0.0
    deviation: float = 0.0
    steps: int = 0

    def is_spike(self, loss: float) -> bool:
        return self.steps >= MIN_STEPS and loss - self.loss > SPIKE_FACTOR * self.deviation

    def updated(self, loss: float) -> LossEMA:
        """The averages after one more step. A spike leaves them unchanged."""
        if self.is_spike(loss):
            return self
        decay = min(DECAY, self.steps / (self.steps + 1))
        mean = decay * self.loss + (1 - decay) * loss
        return LossEMA(mean, decay * self.deviation + (1 - decay) * abs(loss - mean), self.steps + 1)


def non_finite(step: int, loss: float, norm: float, gradients: Iterable[tuple[str, Tensor | None]]) -> str:
    """Empty if loss and gradient norm are finite; otherwise a message that names the first bad gradient."""
    if math.isfinite(loss) and math.isfinite(norm):
        return ""
    bad = (name for name, gradient in gradients if gradient is not None and not bool(gradient.isfinite().all()))
    return f"step {step}: loss {loss}, first gradient that is not finite: {next(bad, 'none')}"


def diverged(what: str) -> DivergedError:
    return DivergedError("T001", what, "lower train.lr, raise train.warmup, set train.clip, or set train.on_nan=rewind")
