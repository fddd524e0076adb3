"""Checks of a model of series: batches and the KV cache; on random windows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headway.checks.equivalence.result import TOLERANCE, Outcome, max_difference
from headway.joint.series import SeriesModel

COUNT = 3
"""Windows."""


@dataclass
class SeriesChecks:
    """Forecasts of a few random windows; every way to compute them must give what each gives alone."""

    model: SeriesModel
    seed: int

    def table(self, compiled: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Name and check, in the order of the output."""
        config, forecast = self.model.config, self.model.forecast
        yield "batch = single", lambda: self.same(forecast(self.windows, self.steps))
        if config.decoder is not None and not config.cell:
            yield "cached = uncached", lambda: self.same(forecast(self.windows, self.steps, cached=False))
        if compiled and (self.windows.device.type != "cpu" or shutil.which("g++") or shutil.which("clang++")):
            yield "compiled = eager", lambda: self.same(torch.compile(forecast)(self.windows, self.steps))

    @property
    def steps(self) -> int:
        """More than the model forecasts at once."""
        return self.model.config.horizon + self.model.config.patch

    @cached_property
    def windows(self) -> Tensor:
        config, like = self.model.config, next(self.model.parameters())
        shape = COUNT, config.look_back, config.channels or config.affine or 2
        return torch.randn(shape, generator=torch.Generator().manual_seed(self.seed)).to(like)

    @cached_property
    def alone(self) -> Tensor:
        return torch.cat([self.model.forecast(window[None], self.steps) for window in self.windows])

    def same(self, found: Tensor) -> Outcome:
        limit = TOLERANCE[self.alone.dtype] * max(1.0, float(self.alone.abs().max()))
        return Outcome(max_difference(found, self.alone), limit)
