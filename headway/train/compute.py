"""The arithmetic of a step: gradients of a batch, and the update; on a GPU recorded once and then replayed.

A small model's kernels take less time than it takes to start them one by one. A CUDA graph starts them all at once, so
a step is recorded as soon as its shape comes again; batches of texts, padded to a multiple of eight, have few shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from headway.config.recipe import TrainConfig
from headway.model.attention import step_kernels
from headway.model.model import Model
from headway.tasks.batch import Batch
from headway.train.distributed import World, full_tensor
from headway.train.optim.optimizer import Optimizer

EAGER_STEPS = 3
"""Ordinary steps before one is recorded: they compile, and let libraries make their plans."""
MAX_GRAPHS = 64
"""Shapes that are recorded; a batch that never has the shape of another is not worth it."""

Loss = Callable[..., Tensor]
Tensors = Sequence[Tensor | None]
Shapes = tuple[tuple[torch.Size | None, ...], ...]
Parts = Sequence[tuple[Batch, int]]
"""Parts of a batch, each with 1 if it counts and 0 if it only keeps this process in step with the others."""


def uses_bfloat16(config: TrainConfig, device: torch.device) -> bool:
    """Whether products are in half precision."""
    return device.type != "cpu" if config.dtype == "auto" else config.dtype == "bfloat16"


class Compute:
    """Gradients and updates of one model."""

    def __init__(
        self,
        model: Model,
        loss: Loss,
        optimizer: Optimizer,
        config: TrainConfig,
        world: World,
        *,
        static_shapes: bool = True,
    ) -> None:
        """`static_shapes`: batches are of one shape. For others, compiling and planning take longer than they save."""
        self.model, self.optimizer, self.config, self.world = model, optimizer, config, world
        accelerated = world.device.type != "cpu"
        compiled = accelerated and static_shapes if config.compile is None else config.compile
        self.loss = torch.compile(loss) if compiled else loss
        self._kernels = step_kernels if static_shapes and world.device.type == "cuda" else nullcontext
        self.half = uses_bfloat16(config, world.device)
        self.captures = config.record and world.device.type == "cuda" and world.size == 1
        self.captured: dict[Shapes, _CapturedStep] = {}
        self._seen: set[Shapes] = set()
        self._steps = 0
        self._stream = torch.cuda.Stream() if self.captures else None
        self._pool = torch.cuda.graph_pool_handle() if self.captures else None
        self._last: _CapturedStep | None = None
        """What the gradients are from, if they are not the parameters' own."""

    def precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.world.device.type, torch.bfloat16) if self.half else nullcontext()

    def gradients(self, parts: Parts, count: float) -> tuple[float, float]:
        """Of the mean over `count` predictions; the sum of the losses, and the norm before clipping."""
        self._last = self._captured_step(parts) if self.captures else None
        if self._last is not None:
            return self._last.gradients(parts, count)
        tensors = [batch.to(self.world.device) for batch, _ in parts]
        used = [one for _, one in parts]
        if self._stream is None:
            return _numbers(self._gradients(tensors, used, self.world.size / count))
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # recording wants all that came before on the stream it records
            result = self._gradients(tensors, used, self.world.size / count)
        torch.cuda.current_stream().wait_stream(self._stream)
        return _numbers(result)

    def _captured_step(self, parts: Parts) -> _CapturedStep | None:
        """Of a step of this shape, if it came before; made now, if it did so only once."""
        if not all(one for _, one in parts):
            return None
        shapes = tuple(tuple(None if t is None else t.shape for t in batch.tensors) for batch, _ in parts)
        self._steps += 1
        if shapes in self.captured or shapes not in self._seen or self._steps <= EAGER_STEPS:
            self._seen.add(shapes)
            return self.captured.get(shapes)
        if len(self.captured) == MAX_GRAPHS:
            return None
        try:
            self.captured[shapes] = _CapturedStep(self, parts)
        except RuntimeError as error:
            warnings.warn(f"steps are not recorded, which is slower: {error}", RuntimeWarning, stacklevel=2)
            self.drop_graphs()
            self.captures = False
            return None
        return self.captured[shapes]

    @contextmanager
    def capture_graph(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Of this thread only: those that prepare the next batches ask for memory meanwhile."""
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                graph.capture_end()

    def by_name(self, parts: Parts, count: float) -> Iterator[tuple[str, Tensor | None]]:
        """The gradients of a step just computed, to find out what is wrong with it: a recorded one is computed anew."""
        if self._last is not None:
            self._gradients([batch.to(self.world.device) for batch, _ in parts], [1] * len(parts), 1 / count)
        for name, parameter in self.model.named_parameters():
            yield name, parameter.grad

    def _gradients(self, parts: Sequence[Tensors], used: Sequence[int], scale: float | Tensor) -> Tensor:
        losses = []
        for tensors, one in zip(parts, used, strict=True):
            with self.precision(), self._kernels():
                total = self.loss(self.model, *tensors) * one
            (total * scale).backward()  # several processes average their gradients, hence their number in the scale
            losses.append(total.detach())
        limit = self.config.clip or float("inf")
        norm = full_tensor(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        loss = torch.stack(losses).sum()
        return torch.stack([loss, norm.to(loss.dtype)])

    def update(self) -> None:
        """Move the weights along the gradients."""
        if self._last is not None:
            self._last.update()
        else:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def discard(self) -> None:
        """Leave the weights as they are."""
        self.optimizer.zero_grad()

    def drop_graphs(self) -> None:
        """Record anew: weights or moments live elsewhere now."""
        self.captured.clear()
        if self._pool is not None:  # torch gives up a pool with the last graph in it
            self._pool = torch.cuda.graph_pool_handle()
        self._seen.clear()
        self._last, self._steps = None, 0
        self.optimizer.zero_grad()


class _CapturedStep:
    """A step as two CUDA graphs, with a look at the loss between them.

    All share their memory: what one leaves there is not needed any more when the next begins. So nobody may hold on
    to the gradients.
    """

    def __init__(self, compute: Compute, parts: Parts) -> None:
        device = compute.world.device
        self.inputs = [[None if t is None else t.to(device) for t in batch.tensors] for batch, _ in parts]
        self.scale = torch.zeros((), device=device)
        compute.optimizer.zero_grad()  # so that recorded gradients are written, not added to others
        torch.cuda.synchronize()
        if not compute.captured:
            torch.cuda.empty_cache()  # what ordinary steps have used; once, as it takes longer than many steps
        self._backward, self._step = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with compute.capture_graph(self._backward):
            self.result = compute._gradients(self.inputs, [1] * len(parts), self.scale)
        with compute.capture_graph(self._step):
            compute.optimizer.step()
        compute.optimizer.zero_grad()

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
