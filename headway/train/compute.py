"""The arithmetic of a training step: gradients and update, on a GPU as CUDA graphs.

The kernels of a small model take less time than it takes to launch them one by one. A CUDA graph launches them all at
once. A step is captured as soon as its shapes come a second time; padded batches have few different shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from headway.config.recipe import TrainConfig
from headway.errors import ConfigError
from headway.model.attention import step_kernels
from headway.model.model import Model
from headway.progress import bar
from headway.tasks.batch import Batch
from headway.tasks.training import Training
from headway.train.distributed import World, full_tensor
from headway.train.optim.optimizer import Optimizer

EAGER_STEPS = 3
"""Steps that run eagerly before one is captured, so that compilers and libraries have made their plans."""
MAX_GRAPHS = 64
"""The most shapes that are captured. If shapes hardly ever repeat, capturing them costs more than it saves."""

Loss = Callable[..., Any]
"""A summed loss; with the next carry, where batches hand one on (`Training.carry`)."""
Tensors = Sequence[Tensor | None]
Shapes = tuple[tuple[torch.Size | None, ...], ...]
MicroBatches = Sequence[tuple[Batch, int]]
"""The micro-batches of a step, each with 1 if it counts, or 0 if it only keeps this process in step with the others."""


def uses_bfloat16(config: TrainConfig, device: torch.device) -> bool:
    """Whether matrix products are computed in bfloat16."""
    return device.type != "cpu" if config.dtype == "auto" else config.dtype == "bfloat16"


class Compute:
    """Computes gradients and updates for one model."""

    def __init__(
        self,
        model: Model,
        loss: Loss,
        optimizer: Optimizer,
        config: TrainConfig,
        world: World,
        *,
        static_shapes: bool = True,
        carry: tuple[Tensor, ...] = (),
    ) -> None:
        """`static_shapes`: all batches have one shape. Only then does compiling save more time than it takes."""
        self.model, self.optimizer, self.config, self.world = model, optimizer, config, world
        on_gpu = world.device.type == "cuda"
        compiled = world.device.type != "cpu" and static_shapes if config.compile is None else config.compile
        self.compiled = bool(compiled)
        self.loss = torch.compile(loss) if compiled else loss
        self._kernels = step_kernels if static_shapes and on_gpu else nullcontext
        self.bfloat16 = uses_bfloat16(config, world.device)
        self.carry = self._next_carry = carry
        """What the next batch starts from (`Training.carry`), and what it will hand on if its step is not dropped."""
        self.captures = config.cuda_graphs and on_gpu and world.size == 1 and not carry
        self.captured: dict[Shapes, _CapturedStep] = {}
        self._seen: set[Shapes] = set()
        self._steps = 0
        self._stream = torch.cuda.Stream() if self.captures else None
        self._pool = torch.cuda.graph_pool_handle() if self.captures else None
        self._last: _CapturedStep | None = None
        """The graph that holds the current gradients; None if they are in the parameters' `grad`."""

    def precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.world.device.type, torch.bfloat16) if self.bfloat16 else nullcontext()

    def gradients(self, micro_batches: MicroBatches, count: float) -> tuple[float, float]:
        """Compute the gradients of the mean loss over `count` predictions; the summed loss, and the norm unclipped."""
        self._last = self._captured_step(micro_batches) if self.captures else None
        if self._last is not None:
            return self._last.gradients(micro_batches, count)
        tensors = [batch.to(self.world.device) for batch, _ in micro_batches]
        counted = [one for _, one in micro_batches]
        if self._stream is None:
            return _numbers(self._gradients(tensors, counted, self.world.size / count))
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # a capture needs all earlier work on the stream it captures
            result = self._gradients(tensors, counted, self.world.size / count)
        torch.cuda.current_stream().wait_stream(self._stream)
        return _numbers(result)

    def _gradients(self, inputs: Sequence[Tensors], counted: Sequence[int], scale: float | Tensor) -> Tensor:
        losses, carried = [], []
        for tensors, one, carry in zip(inputs, counted, self._carry_parts(inputs), strict=True):
            with self.precision(), self._kernels():
                found = self.loss(self.model, *tensors, *carry)
                total, after = found if carry else (found, ())
                total = total * one
            (total * scale).backward()  # FSDP averages over the processes, so `scale` contains their number
            losses.append(total.detach())
            carried.append([part.detach() for part in after])
        self._next_carry = tuple(torch.cat(parts) for parts in zip(*carried, strict=True))
        limit = self.config.clip or float("inf")
        norm = full_tensor(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        loss = torch.stack(losses).sum()
        return torch.stack([loss, norm.to(loss.dtype)])

    def _carry_parts(self, inputs: Sequence[Tensors]) -> list[tuple[Tensor, ...]]:
        """The rows of the carry that belong to each micro-batch."""
        if not self.carry:
            return [()] * len(inputs)
        rows = [len(next(t for t in tensors if t is not None)) for tensors in inputs]
        return list(zip(*(part.split(rows) for part in self.carry), strict=True))

    def by_name(self, micro_batches: MicroBatches, count: float) -> Iterator[tuple[str, Tensor | None]]:
        """The gradients of the last step, to find a bad one. Those of a captured step are computed again."""
        if self._last is not None:
            inputs = [batch.to(self.world.device) for batch, _ in micro_batches]
            self._gradients(inputs, [1] * len(micro_batches), 1 / count)
        for name, parameter in self.model.named_parameters():
            yield name, parameter.grad

    def update(self) -> None:
        """Apply the gradients to the weights."""
        if self._last is not None:
            self._last.update()
        else:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.carry = self._next_carry

    def discard(self) -> None:
        """Drop the gradients; the weights stay as they are, and so does what the next batch starts from."""
        self.optimizer.zero_grad()

    def _captured_step(self, micro_batches: MicroBatches) -> _CapturedStep | None:
        """The captured step for these shapes; captured now if the shapes come for the second time."""
        if not all(one for _, one in micro_batches):
            return None
        shapes = tuple(tuple(None if t is None else t.shape for t in batch.tensors) for batch, _ in micro_batches)
        self._steps += 1
        if shapes in self.captured or shapes not in self._seen or self._steps <= EAGER_STEPS:
            self._seen.add(shapes)
            return self.captured.get(shapes)
        if len(self.captured) == MAX_GRAPHS:
            return None
        try:
            with bar("capturing CUDA graphs"):
                self.captured[shapes] = _CapturedStep(self, micro_batches)
        except RuntimeError as error:
            warnings.warn(f"training without CUDA graphs, which is slower: {error}", RuntimeWarning, stacklevel=2)
            self.drop_graphs()
            self.captures = False
            return None
        return self.captured[shapes]

    @contextmanager
    def capture_graph(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Capture this thread's work only: the threads that prefetch batches allocate memory meanwhile."""
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                graph.capture_end()

    def drop_graphs(self) -> None:
        """Drop all graphs, because weights or moments have moved in memory."""
        self.captured.clear()
        if self._pool is not None:  # torch frees a pool with the last graph in it
            self._pool = torch.cuda.graph_pool_handle()
        self._seen.clear()
        self._last, self._steps = None, 0
        self.optimizer.zero_grad()


class DirectCompute:
    """Steps without gradients: the task changes the weights itself (`Training.update`), on the device of the model."""

    compiled = bfloat16 = False
    carry: tuple[Tensor, ...] = ()

    def __init__(self, model: Model, task: Training, optimizer: Optimizer, world: World) -> None:
        self.model, self.task, self.optimizer, self.world = model, task, optimizer, world

    def precision(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def gradients(self, micro_batches: MicroBatches, count: float) -> tuple[float, float]:
        """Change the weights at once; the summed loss, and 0 for the norm of gradients that do not exist."""
        lr = float(self.optimizer.groups[0]["lr"]) if self.optimizer.groups else 0.0
        batches = (batch.to(self.world.device) for batch, _ in micro_batches)
        return sum(self.task.update(self.model, tensors, lr) for tensors in batches), 0.0

    def by_name(self, micro_batches: MicroBatches, count: float) -> Iterator[tuple[str, Tensor | None]]:
        return ((name, None) for name, _ in self.model.named_parameters())

    def update(self) -> None:
        """Nothing is left to do."""

    def discard(self) -> None:
        """Nothing can be taken back: `make_compute` refuses train.on_nan = skip."""

    def drop_graphs(self) -> None:
        """There are none."""


def make_compute(model: Model, task: Training, optimizer: Optimizer, config: TrainConfig, world: World) -> AnyCompute:
    """How a task's steps are computed: by gradients, or by the task itself."""
    if task.by_gradient:
        shapes, carry = task.static_shapes, task.carry(model)
        return Compute(model, task.loss, optimizer, config, world, static_shapes=shapes, carry=carry)
    if world.size > 1:
        raise ConfigError(
            "C004", f"this task changes weights without gradients, in one process: not gpus = {world.size}"
        )
    if config.on_nan == "skip":
        why = "a step of this task cannot be taken back: not train.on_nan = skip"
        raise ConfigError("C004", why, 'set train.on_nan = "stop" or "rewind"')
    return DirectCompute(model, task, optimizer, world)


class _CapturedStep:
    """A step as two CUDA graphs, gradients and update. The host checks the loss between them.

    All graphs share one memory pool, so the gradients are valid only until the next graph runs.
    """

    def __init__(self, compute: Compute, micro_batches: MicroBatches) -> None:
        device = compute.world.device
        self.inputs = [[None if t is None else t.to(device) for t in batch.tensors] for batch, _ in micro_batches]
        self.scale = torch.zeros((), device=device)
        compute.optimizer.zero_grad()  # so that the graph writes gradients instead of adding to old ones
        torch.cuda.synchronize()
        if not compute.captured:
            torch.cuda.empty_cache()  # frees what eager steps used; only once, as it takes longer than many steps
        self._backward, self._step = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with compute.capture_graph(self._backward):
            self.result = compute._gradients(self.inputs, [1] * len(micro_batches), self.scale)
        with compute.capture_graph(self._step):
            compute.optimizer.step()
        compute.optimizer.zero_grad()

    def gradients(self, micro_batches: MicroBatches, count: float) -> tuple[float, float]:
        for (batch, _), own in zip(micro_batches, self.inputs, strict=True):
            for tensor, place in zip(batch.tensors, own, strict=True):
                if tensor is not None and place is not None:
                    place.copy_(tensor, non_blocking=True)
        self.scale.fill_(1 / count)
        self._backward.replay()
        return _numbers(self.result)

    def update(self) -> None:
        self._step.replay()


AnyCompute = Compute | DirectCompute


def _numbers(result: Tensor) -> tuple[float, float]:
    loss, norm = result.tolist()
    return loss, norm
