"""Solvers: from noise to images in a few steps, given what a model says of noisy images.

Each step goes from time s to an earlier time t. At the last step t = 0, where the image is what the model predicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from headway.tasks.diffusion.process import LAST, Process

Predict = Callable[[Tensor, float], tuple[Tensor, Tensor]]
"""Noisy images and their time → the image and the noise in them."""
Draw = Callable[[int], Tensor]
"""The number of a step → fresh noise."""
Levels = tuple[float, float]


def solve(solver: str, process: Process, predict: Predict, noise: Tensor, steps: int, draw: Draw) -> Tensor:
    """Images from noise (B, …) by `steps` steps. Only ddpm draws more noise, one `draw` for each step."""
    times = torch.linspace(LAST, 0, steps + 1, dtype=torch.float64)
    levels = [(float(a), float(s)) for a, s in zip(*process.levels(times), strict=True)]
    x, before = noise, None
    for step, time in enumerate(times[:-1].tolist()):
        here, there = levels[step], levels[step + 1]
        found = predict(x, time)
        if solver == "ddpm":
            x = _ancestral(found, here, there, draw(step))
        elif solver == "heun" and there[1] > 0:
            x = _heun(predict, x, found, here, there, float(times[step + 1]))
        elif solver == "dpm" and before is not None and there[1] > 0:
            x = _multistep(x, found[0], before, levels[step - 1], here, there)
        else:
            x = there[0] * found[0] + there[1] * found[1]  # DDIM (Song et al. 2021); for flow it is Euler's method
        before = found[0]
    return x


def _ancestral(found: tuple[Tensor, Tensor], here: Levels, there: Levels, fresh: Tensor) -> Tensor:
    """A sample of the posterior of the image at time t (Ho et al. 2020), written for any path."""
    ratio = here[0] / there[0]
    variance = (there[1] / here[1]) ** 2 * (here[1] ** 2 - ratio**2 * there[1] ** 2)
    kept = math.sqrt(max(0.0, there[1] ** 2 - variance))
    return there[0] * found[0] + kept * found[1] + math.sqrt(max(0.0, variance)) * fresh


def _heun(
    predict: Predict, x: Tensor, found: tuple[Tensor, Tensor], here: Levels, there: Levels, time: float
) -> Tensor:
    """The trapezoidal rule: the mean of what is predicted at both ends of the step."""
    again = predict(there[0] * found[0] + there[1] * found[1], time)
    image, noise = ((a + b) / 2 for a, b in zip(found, again, strict=True))
    return x + (there[0] - here[0]) * image + (there[1] - here[1]) * noise


def _multistep(x: Tensor, image: Tensor, before: Tensor, last: Levels, here: Levels, there: Levels) -> Tensor:
    """DPM-Solver++(2M) (Lu et al. 2022): the image is extrapolated from the last two predictions in log(α/σ)."""
    first, second, third = (math.log(alpha / sigma) for alpha, sigma in (last, here, there))
    step, ratio = third - second, (second - first) / (third - second)
    ahead = image + (image - before) / (2 * ratio)
    return there[1] / here[1] * x - there[0] * math.expm1(-step) * ahead
