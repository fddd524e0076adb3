"""The diffusion process: how images become noise, and what a model predicts of both.

A noisy image at time t is x = α(t) · image + σ(t) · noise; α falls from 1 to 0 while σ rises from 0 to 1.
Letters: B images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.config.model import DenoiseHeadConfig
from headway.tasks.diffusion.task import Settings

FIRST, LAST = 1e-3, 1 - 1e-3
"""The least and the most noise that a model learns from, as times: at the very ends nothing is left to predict."""
BETA_FIRST, BETA_LAST = 0.1, 20.0
"""Rates of noise of the linear schedule in continuous time (Ho et al. 2020; Song et al. 2021)."""


@dataclass(frozen=True)
class Process:
    """The path from images to noise, and what the model predicts along it."""

    objective: str
    schedule: str

    @classmethod
    def of(cls, trained: Settings | DenoiseHeadConfig) -> Process:
        """By the settings of a training, or as a trained model says."""
        return cls(trained.objective, trained.schedule)

    def levels(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """α and σ at these times."""
        if self.objective == "flow":  # a straight line (Liu et al. 2023; Lipman et al. 2023)
            return 1 - times, times
        if self.schedule == "cosine":  # Nichol & Dhariwal 2021
            return (times * math.pi / 2).cos(), (times * math.pi / 2).sin()
        log_alpha = -(BETA_LAST - BETA_FIRST) / 4 * times**2 - BETA_FIRST / 2 * times
        return log_alpha.exp(), (-torch.expm1(2 * log_alpha)).sqrt()

    def noisy(self, images: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Images (B, …) at times (B,)."""
        alpha, sigma = self._levels_like(images, times)
        return alpha * images + sigma * noise

    def target(self, images: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """What the model should predict."""
        alpha, sigma = self._levels_like(images, times)
        if self.objective == "v":  # Salimans & Ho 2022
            return alpha * noise - sigma * images
        return noise if self.objective == "epsilon" else noise - images

    def split(self, x: Tensor, predicted: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        """The image and the noise that a prediction for noisy images means."""
        alpha, sigma = self._levels_like(x, times)
        if self.objective == "v":
            return alpha * x - sigma * predicted, sigma * x + alpha * predicted
        if self.objective == "epsilon":
            return (x - sigma * predicted) / alpha, predicted
        return x - sigma * predicted, x + alpha * predicted

    def _levels_like(self, x: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        alpha, sigma = self.levels(times)
        shape = (-1, *(1,) * (x.ndim - 1))
        return alpha.view(shape), sigma.view(shape)
