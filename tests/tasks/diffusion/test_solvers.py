"""The diffusion process and its solvers, on data whose scores are known: normal numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headway.tasks.diffusion.noise import normal
from headway.tasks.diffusion.process import FIRST, LAST, Process
from headway.tasks.diffusion.solvers import Predict, solve

PATHS = [("v", "cosine"), ("v", "linear"), ("epsilon", "cosine"), ("epsilon", "linear"), ("flow", "cosine")]
MEAN, SPREAD = 0.5, 0.3
"""Of the data."""
EXACT = torch.float64


def best(process: Process) -> Predict:
    """What a perfect model knows of x = α·data + σ·noise: the means of data and noise given x."""

    def predict(x: Tensor, time: float) -> tuple[Tensor, Tensor]:
        alpha, sigma = (float(level) for level in process.levels(torch.tensor([time], dtype=EXACT)))
        gain = alpha * SPREAD**2 / (alpha**2 * SPREAD**2 + sigma**2)
        image = MEAN + gain * (x - alpha * MEAN)
        return image, (x - alpha * image) / sigma

    return predict


def exact(process: Process, noise: Tensor) -> Tensor:
    """The end of the probability flow from `noise` at the latest time: normal to normal, number by number."""
    alpha, sigma = (float(level) for level in process.levels(torch.tensor([LAST], dtype=EXACT)))
    return MEAN + SPREAD * (noise - alpha * MEAN) / math.sqrt(alpha**2 * SPREAD**2 + sigma**2)


@pytest.mark.parametrize("path", PATHS)
def test_image_and_noise_follow_from_what_is_predicted(path: tuple[str, str]) -> None:
    process, images, noise = Process(*path), torch.randn(5, 3, 4, 4, dtype=EXACT), torch.randn(5, 3, 4, 4, dtype=EXACT)
    times = torch.tensor([FIRST, 0.25, 0.5, 0.75, LAST], dtype=EXACT)
    x = process.noisy(images, noise, times)
    found = process.split(x, process.target(images, noise, times), times)
    torch.testing.assert_close(found, (images, noise))


@pytest.mark.parametrize("path", PATHS)
def test_images_become_noise_along_a_path(path: tuple[str, str]) -> None:
    alpha, sigma = Process(*path).levels(torch.linspace(0, 1, 50, dtype=EXACT))
    assert alpha[0] == 1 and sigma[0] == 0 and alpha[-1] < 0.01 and sigma[-1] > 0.99
    assert (alpha.diff() < 0).all() and (sigma.diff() > 0).all()
    if path[0] != "flow":
        torch.testing.assert_close(alpha**2 + sigma**2, torch.ones(50, dtype=EXACT))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("solver", "order"), [("ddim", 1), ("dpm", 2), ("heun", 2)])
def test_solvers_converge_to_the_same_images(solver: str, order: int, path: tuple[str, str]) -> None:
    process, noise = Process(*path), torch.linspace(-2, 2, 9, dtype=EXACT)[:, None]
    target = exact(process, noise)

    def error(steps: int) -> float:
        found = solve(solver, process, best(process), noise, steps, lambda step: pytest.fail("draws noise"))
        return float((found - target).abs().max())

    errors = [error(steps) for steps in (10, 100, 400)]
    assert errors[2] < errors[1] < errors[0] < 0.25
    assert errors[2] < {1: 0.01, 2: 0.001}[order], errors
    if order == 2:
        assert errors[1] < 0.5 * _euler_error(process, noise, target)


def _euler_error(process: Process, noise: Tensor, target: Tensor) -> float:
    found = solve("ddim", process, best(process), noise, 100, lambda step: noise)
    return float((found - target).abs().max())


@pytest.mark.parametrize("path", PATHS)
def test_ancestral_sampling_gives_the_distribution_of_the_data(path: tuple[str, str]) -> None:
    process, keys = Process(*path), torch.arange(4000)
    noise = normal(keys, (1,)).to(EXACT)
    found = solve("ddpm", process, best(process), noise, 200, lambda step: normal(keys, (1,), 1 + step).to(EXACT))
    assert float(found.mean()) == pytest.approx(MEAN, abs=0.02)
    assert float(found.std()) == pytest.approx(SPREAD, abs=0.02)


def test_ddim_for_flow_is_eulers_method() -> None:
    process, x, steps = Process("flow", "cosine"), torch.randn(6, 1, dtype=EXACT), 7
    found = solve("ddim", process, best(process), x, steps, lambda step: x)
    for step in range(steps):
        time = LAST * (1 - step / steps)
        image, noise = best(process)(x, time)
        x = x - LAST / steps * (noise - image)
    torch.testing.assert_close(found, x)
