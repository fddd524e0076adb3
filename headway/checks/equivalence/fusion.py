"""Checks of a model of images with sounds: batches, and attention maps; on random inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from headway.checks.equivalence.reference import random_input
from headway.checks.equivalence.result import TOLERANCE, Outcome, max_difference
from headway.joint.fusion import Fusion
from headway.model.attention import Backend, Hook

COUNT = 3
"""Images and sounds."""


@dataclass
class FusionChecks:
    """A few random examples; every way to compute them must give what each gives alone."""

    model: Fusion
    seed: int

    def table(self, compiled: bool) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Name and check, in the order of the output."""
        yield "batch = single", lambda: self.outcome(max_difference(self.logits(slice(None)), torch.cat(self.alone)))
        yield "maps = eager weights", self.maps
        if compiled:
            yield "compiled = eager", self.compiling

    @cached_property
    def inputs(self) -> tuple[Tensor, Tensor]:
        generator, like = torch.Generator().manual_seed(self.seed), next(self.model.parameters())
        fronts = self.model.config.fronts
        images, sounds = (torch.stack([random_input(front, 0, generator) for _ in range(COUNT)]) for front in fronts)
        return images.to(like), sounds.to(like)

    def logits(self, rows: slice, backend: Backend = "fused", hook: Hook | None = None, model: Any = None) -> Tensor:
        images, sounds = self.inputs
        found = (self.model if model is None else model)(images[rows], sounds[rows], backend=backend, hook=hook)
        logits: Tensor = self.model.classify(found.hidden)
        return logits

    @cached_property
    def alone(self) -> list[Tensor]:
        return [self.logits(slice(i, i + 1)) for i in range(COUNT)]

    def outcome(self, worst: float) -> Outcome:
        largest = max(1.0, *(float(each.abs().max()) for each in self.alone))
        return Outcome(worst, TOLERANCE[self.alone[0].dtype] * largest)

    def maps(self) -> Outcome:
        """Attention maps that are recomputed beside the fused kernel, and its output, against the eager backend."""
        seen: dict[str, list[Tensor]] = {}

        def hook(name: str, make: Callable[[], Tensor]) -> None:
            if name.endswith("weights"):
                seen.setdefault(name, []).append(make())

        found = [self.logits(slice(None), backend, hook) for backend in ("fused", "eager")]
        return self.outcome(max([max_difference(*found), *(max_difference(*pair) for pair in seen.values())]))

    def compiling(self) -> Outcome:
        found = self.logits(slice(None), model=torch.compile(self.model))
        return self.outcome(max_difference(found, torch.cat(self.alone)))
