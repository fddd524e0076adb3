"""Learning-rate schedules: pure functions of the step and of the share of the budget that is spent."""

from __future__ import annotations

import math

from headway.config.recipe import TrainConfig


def lr_factor(config: TrainConfig, step: int, progress: float, warm: float) -> float:
    """The learning rate at a step, as a share of its peak; the first step is 0.

    `progress` is the share of the budget that is spent, `warm` its value at the end of the warm-up. The decay starts
    there, so the rate has no jump. Schedules have the names and the rates that they have in `transformers`.
    """
    if step < config.warmup:
        return step / config.warmup
    if config.schedule == "rsqrt":  # Vaswani et al. 2017, scaled to peak at 1 when the warm-up ends
        return math.sqrt(max(1, config.warmup) / max(1, step))
    left = (1 - min(1.0, progress)) / (1 - warm) if warm < 1 else 0.0
    return _decayed(config, min(1.0, left))


def lr_factor_from_start(config: TrainConfig, step: int, progress: float) -> float:
    """The schedule of older checkpoints (`decay_from_start`), kept so that their runs end as they began.

    The decay starts at the first step, so the rate jumps where the warm-up ends.
    """
    if config.schedule == "rsqrt":
        at, warm = step + 1, max(1, config.warmup)
        return min(at / warm, math.sqrt(warm / at))
    if step < config.warmup:
        return (step + 1) / config.warmup
    return _decayed(config, 1 - min(1.0, progress))


def _decayed(config: TrainConfig, left: float) -> float:
    """The factor after the warm-up; `left` runs from 1 to 0."""
    floor = config.final_lr
    if config.schedule == "cosine":
        return floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * left))
    if config.schedule == "linear":
        return floor + (1 - floor) * left
    if config.schedule == "wsd":  # warm up, stay, decay over the last fifth
        return floor + (1 - floor) * min(1.0, left / 0.2)
    return 1.0


def peak_lr(config: TrainConfig, width: int) -> float:
    """`train.lr`, or a default that is smaller for wider models."""
    return config.lr if config.lr is not None else min(3e-3, 0.4 / width)


def unfrozen_depth(config: TrainConfig, step: int) -> int | None:
    """The deepest block that trains at a step, counted from the heads; None if all blocks train."""
    return step // config.unfreeze if config.unfreeze else None
