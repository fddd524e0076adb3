"""The arithmetic of a step: gradients of a batch, and the update; on a GPU recorded once and then replayed.

A small model's kernels take less time than it takes to start them one by one. A CUDA graph starts them all at once, so
after a few ordinary steps the step is recorded, as long as all batches have one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from headway.model.attention import step_kernels
from headway.model.model import Model
from headway.recipe import TrainConfig
from headway.tasks.batch import Batch
from headway.train.distributed import World, whole
from headway.train.optim import Optimizer

WARM_UP = 3
"""Ordinary steps before one is recorded: they compile, and let libraries make their plans."""

Loss = Callable[..., Tensor]
Tensors = Sequence[Tensor | None]
Parts = Sequence[tuple[Batch, int]]
"""Parts of a batch, each with 1 if it counts and 0 if it only keeps this process in step with the others."""


class Compute:
    """Gradients and updates of one model."""

    def __init__(self, model: Model, loss: Loss, optimizer: Optimizer, config: TrainConfig, world: World) -> None:
        self.model, self.optimizer, self.config, self.world = model, optimizer, config, world
        accelerated = world.device.type != "cpu"
        compiled = accelerated if config.compile is None else config.compile
        self.loss = torch.compile(loss) if compiled else loss
        self.half = accelerated if config.dtype == "auto" else config.dtype == "bfloat16"
        self.records = compiled and world.device.type == "cuda" and world.size == 1
        self.steps = 0
        self._stream = torch.cuda.Stream() if self.records else None
        self._recorded: _Recorded | None = None

    def precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.world.device.type, torch.bfloat16) if self.half else nullcontext()

    def gradients(self, parts: Parts, count: float) -> tuple[float, float]:
        """Of the mean over `count` predictions; the sum of the losses, and the norm before clipping."""
        if self._recorded is not None and not self._recorded.fits(parts):
            self.forget()
            self.records = False  # ragged batches: no two alike
        if self._recorded is not None:
            return self._recorded.gradients(parts, count)
        tensors = [batch.to(self.world.device) for batch, _ in parts]
        used = [one for _, one in parts]
        if self._stream is None:
            return _numbers(self._gradients(tensors, used, self.world.size / count))
        self.steps += 1
        if self.steps > WARM_UP and all(used):
            self._recorded = _Recorded(self, self._stream, tensors)
            return self._recorded.gradients(parts, count)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # recording wants all that came before on the stream it records
            result = self._gradients(tensors, used, self.world.size / count)
        torch.cuda.current_stream().wait_stream(self._stream)
        return _numbers(result)

    def _gradients(self, parts: Sequence[Tensors], used: Sequence[int], scale: float | Tensor) -> Tensor:
        losses = []
        for tensors, one in zip(parts, used, strict=True):
            with self.precision(), step_kernels() if self.world.device.type == "cuda" else nullcontext():
                total = self.loss(self.model, *tensors) * one
            (total * scale).backward()  # several processes average their gradients, hence their number in the scale
            losses.append(total.detach())
        limit = self.config.clip or float("inf")
        norm = whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        loss = torch.stack(losses).sum()
        return torch.stack([loss, norm.to(loss.dtype)])

    def update(self) -> None:
        """Move the weights along the gradients."""
        if self._recorded is not None:
            self._recorded.update()
        else:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def discard(self) -> None:
        """Leave the weights as they are."""
        if self._recorded is None:
            self.optimizer.zero_grad()

    def forget(self) -> None:
        """Record anew: weights or moments live elsewhere now."""
        self._recorded, self.steps = None, 0
        self.optimizer.zero_grad()


class _Recorded:
    """A step as two CUDA graphs, with a look at the loss between them."""

    def __init__(self, compute: Compute, stream: torch.cuda.Stream, parts: Sequence[Tensors]) -> None:
        self.inputs = [[None if t is None else t.clone() for t in tensors] for tensors in parts]
        self.scale = torch.zeros((), device=compute.world.device)
        compute.optimizer.zero_grad()  # so that recorded gradients are written, not added to others
        torch.cuda.synchronize()
        self._backward, self._step = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._backward, stream=stream):
            self.result = compute._gradients(self.inputs, [1] * len(parts), self.scale)
        with torch.cuda.graph(self._step, stream=stream):
            compute.optimizer.step()

    def fits(self, parts: Parts) -> bool:
        shapes = [[None if t is None else t.shape for t in batch.tensors] for batch, _ in parts]
        return shapes == [[None if t is None else t.shape for t in tensors] for tensors in self.inputs]

    def gradients(self, parts: Parts, count: float) -> tuple[float, float]:
        for (batch, _), own in zip(parts, self.inputs, strict=True):
            for tensor, place in zip(batch.tensors, own, strict=True):
                if tensor is not None and place is not None:
                    place.copy_(tensor, non_blocking=True)
        self.scale.fill_(1 / count)
        self._backward.replay()
        return _numbers(self.result)

    def update(self) -> None:
        self._step.replay()


def _numbers(result: Tensor) -> tuple[float, float]:
    loss, norm = result.tolist()
    return loss, norm
