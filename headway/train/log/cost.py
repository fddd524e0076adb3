"""What a run costs: floating-point operations, their share of the hardware's peak (MFU), memory."""

from __future__ import annotations

import resource
import sys
from typing import Any

import torch
from torch import nn

from headway.config.networks.baseline import BaselineConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.ngram import NGramConfig
from headway.model.feed_forward import Experts
from headway.model.model import Model
from headway.model.stack import Stack
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task

PEAKS = {"b200": 2250e12, "h200": 989e12, "h100": 989e12, "a100": 312e12, "l40s": 362e12, "l4": 121e12, "4090": 165e12}
"""Dense bfloat16 operations per second, by a part of the device's name, from the makers' data sheets."""

MEASURED_STEPS, MEASURED_SECONDS, LONG_RUN = 3, 3.0, 120.0
"""Steps and seconds after which a run is estimated, and the seconds from which a run is long."""


def flops_per_token(config: AnyConfig, parameters: int, length: int) -> float:
    """Operations of a training step per token: 6 per weight, and attention's products (Chowdhery et al. 2022).

    `parameters` are those that are multiplied. A recurrent cell and a convolution use each weight once per token, too.
    """
    if isinstance(config, NGramConfig):
        return 0.0  # its text is sorted, and nothing is multiplied
    stack = config.output_stack
    layers = config.attention_layers if isinstance(config, BaselineConfig) else stack.n_layers
    return 6.0 * parameters + 12.0 * layers * stack.n_heads * stack.head_width * length


def multiplied_parameters(model: Model) -> int:
    """The weights that take part in the products of a token: a table from which rows are only taken costs nothing.

    Of experts those count that a token takes, and blocks that share weights count as if they did not.
    """
    padding = {id(weight): weight[rows:].numel() for weight, rows in model.vocabulary_rows()}
    parts = (part for part in model.modules() if not isinstance(part, nn.Embedding))
    used = {id(weight): weight for part in parts for weight in part.parameters(recurse=False)}
    times: dict[int, float] = {}
    for part in model.modules():
        if isinstance(part, Experts):
            matrices = [*part.up.parameters(), *part.down.parameters()]
            times |= {id(weight): part.config.top_k / part.config.count for weight in matrices}
    for part in model.modules():
        if isinstance(part, Stack) and part.config.shared:
            weights = part.blocks.parameters()
            times |= {id(weight): part.config.n_layers * times.get(id(weight), 1.0) for weight in weights}
    return round(sum(times.get(key, 1.0) * (weight.numel() - padding.get(key, 0)) for key, weight in used.items()))


def model_flops_per_token(recipe: Recipe, model: Model) -> float:
    """`flops_per_token` of a model, at the length of its recipe."""
    length = recipe.data.length if get_task(recipe.task).takes == "text" else model.config.max_length or 1
    return flops_per_token(model.config, multiplied_parameters(model), length)


def utilisation(flops: float, seconds: float, device: torch.device) -> float | None:
    """Model FLOPs utilisation, a share of the device's peak; None if the peak is not known."""
    if device.type != "cuda" or seconds <= 0:
        return None
    name = torch.cuda.get_device_name(device).lower()
    peak = next((peak for part, peak in PEAKS.items() if part in name), None)
    return None if peak is None else flops / seconds / peak


class Estimate:
    """How long a run will take, by its first steps; made once, and only of a run that takes long."""

    def __init__(self) -> None:
        self.first: tuple[int, float, float] | None = None
        """Step, seconds and share of the budget after the first step, which may compile and counts for nothing."""
        self.made = False

    def after_step(self, step: int, seconds: float, share: float) -> dict[str, Any] | None:
        """The seconds and steps that are left, and the seconds of a step, as soon as enough steps were measured."""
        if self.first is None:
            self.first = step, seconds, share
        begin, at, spent = self.first
        steps, took = step - begin, seconds - at
        if self.made or steps < MEASURED_STEPS or took < MEASURED_SECONDS or share <= spent:
            return None
        self.made = True
        found = seconds_left(steps, took, spent, share)
        return None if found["seconds"] < LONG_RUN else found


def seconds_left(steps: int, took: float, spent: float, share: float) -> dict[str, Any]:
    """What is left of a budget when some steps have brought the spent share of it from `spent` to `share`."""
    left = (1 - min(share, 1.0)) * took / (share - spent)
    return {"seconds": left, "steps": round(left / (took / steps)), "step_seconds": took / steps}


def peak_memory(device: torch.device) -> int:
    """The most bytes in use at one time: on the GPU, or else by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
