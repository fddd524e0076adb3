"""Optimizer and learning rate. A schedule is a pure function of how far a run is: plotted and tested alone."""

from __future__ import annotations

import math

import torch
from torch import nn

from headway.recipe import TrainConfig


def lr_factor(config: TrainConfig, step: int, progress: float) -> float:
    """Share of the peak learning rate at a step; `progress` runs from 0 to 1 over the budget."""
    if config.schedule == "rsqrt":  # Vaswani et al. 2017, scaled to peak at 1 when the warm-up ends
        at, warm = step + 1, max(1, config.warmup)
        return min(at / warm, math.sqrt(warm / at))
    if step < config.warmup:
        return (step + 1) / config.warmup
    left, floor = 1 - min(1.0, progress), config.final_lr
    if config.schedule == "cosine":
        return floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * left))
    if config.schedule == "linear":
        return floor + (1 - floor) * left
    if config.schedule == "wsd":  # warm up, stay, decay over the last fifth
        return floor + (1 - floor) * min(1.0, left / 0.2)
    return 1.0


def peak_lr(config: TrainConfig, width: int) -> float:
    """As given, or by width: wide models want smaller steps."""
    return config.lr if config.lr is not None else min(3e-3, 0.4 / width)


def make_optimizer(model: nn.Module, config: TrainConfig, width: int) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019); matrices decay, norms and biases do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    first, second = config.betas
    return torch.optim.AdamW(groups, lr=peak_lr(config, width), betas=(first, second), fused=True)
