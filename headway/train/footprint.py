"""A lower bound on a run's memory and disk: a run that is refused could not have been trained.

Trained weights, gradients, optimizer moments and copies of the weights are counted in float32, as they are stored.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from headway.config.model import ModelConfig
from headway.config.networks.baseline import BaselineConfig
from headway.data.batching.batch_sampler import BatchSampler, shard
from headway.data.batching.permutation import Index
from headway.errors import MemoryOrDiskError, counted
from headway.jsonfile import show
from headway.resources import available_host_memory, gigabytes
from headway.tasks.batch import Batch
from headway.tasks.recipe import Recipe, batch_size
from headway.tasks.registry import get_task
from headway.train.compute import uses_bfloat16
from headway.train.distributed import World

FLOAT = 4
HALF = 2


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes that a run needs: of all its processes together, except for the activations, which are of one process."""

    weights: int
    gradients: int
    moments: int
    """The optimizer's state."""
    copies: int
    """The moving average and the best weights."""
    activations: int
    trained: int
    """The part of the weights that trains."""

    @property
    def step(self) -> int:
        return self.weights + self.gradients + self.moments + self.copies + self.activations

    @property
    def checkpoint(self) -> int:
        """Bytes on disk, and in memory while the checkpoint is written."""
        return self.trained + self.moments + self.copies

    def parts(self) -> str:
        """The parts of at least a megabyte, as text."""
        sizes = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.moments,
            "copies of the weights": self.copies,
            "activations": self.activations,
        }
        return ", ".join(f"{name} {gigabytes(size)}" for name, size in sizes.items() if size >= 1e6)


def footprint(recipe: Recipe, model: nn.Module, batch: Batch | None = None, half: bool = False) -> Footprint:
    """The footprint of a model, which may be on the meta device, and of the largest micro-batch of a step."""
    settings = recipe.train
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad) * FLOAT
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad) * HALF
    # AdamW has two moments per weight, SGD one with momentum; Muon has one for matrices and two for the rest.
    moments = {"adamw": 2, "muon": 1, "sgd": 1 if settings.betas[0] else 0}[settings.optimizer]
    by_gradient = get_task(recipe.task).load_training().by_gradient
    copies = bool(settings.ema) + bool(settings.keep_best or settings.patience)
    return Footprint(
        weights=trained + frozen,
        gradients=trained if by_gradient else 0,
        moments=moments * trained if by_gradient else 0,
        copies=copies * trained,
        activations=0 if batch is None else _activations(recipe, model, batch, HALF if half else FLOAT),
        trained=trained,
    )


def _activations(recipe: Recipe, model: nn.Module, batch: Batch, size: int) -> int:
    """The least that the backward pass needs: each block's input, the inputs of its matrices, and the logits."""
    config = getattr(model, "config", None)
    if not isinstance(config, ModelConfig) or isinstance(config, BaselineConfig):
        return 0
    kept = 0
    if not recipe.model.lora and not recipe.model.freeze:  # frozen blocks keep less
        for stack in (config.encoder, config.decoder):
            if stack is not None and config.kind != "encoder-decoder":  # a batch does not say how its tokens divide
                inside = 0 if recipe.train.gradient_checkpointing else stack.d_model + stack.d_ff
                kept += stack.n_layers * (stack.d_model + inside) * batch.tokens
    logits = int(batch.count) * config.output_front.vocab if config.lm is not None else 0  # type: ignore[union-attr]
    return (kept + logits) * size


def check_first_step(
    recipe: Recipe, model: nn.Module, batch: Callable[[Index], Batch], plan: BatchSampler, world: World
) -> Footprint:
    """The footprint of a run; refused if its first step does not fit into this process's memory.

    The model is on the meta device.
    """
    samples = plan.samples(0)
    part = shard(shard(samples, world.size)[world.rank], recipe.train.accumulate)[0]
    first = batch(part if len(part) else samples[:1])
    need = footprint(recipe, model, first, uses_bfloat16(recipe.train, world.device))
    check_memory(need, recipe, world.device, world.size)
    return need


def check_memory(need: Footprint, recipe: Recipe, device: torch.device, processes: int) -> None:
    """Refuse a run that does not fit into the device's memory, or whose checkpoint does not fit into the host's."""
    shared = (need.step - need.activations) // processes + need.activations
    wanted = {"cuda": shared} if device.type == "cuda" else {"host": shared}
    saving = need.checkpoint + (
        0 if device.type == "cuda" else (need.checkpoint + need.weights - need.trained) // processes
    )
    wanted["host"] = max(wanted.get("host", 0), saving)
    for place, size in wanted.items():
        have = torch.cuda.mem_get_info(device)[0] if place == "cuda" else available_host_memory()
        if have is not None and size > have:
            where = "the GPU" if place == "cuda" else "this process"
            what = f"the run needs at least {gigabytes(size)} of memory, and {where} has {gigabytes(have)}"
            raise MemoryOrDiskError("M011", f"{what}: {need.parts()}", memory_advice(recipe))


def memory_advice(recipe: Recipe, folder: Path | None = None) -> str:
    """Settings that need less memory, with values; those that a resumed run may change come first."""
    if recipe.model.kind == "ngram":
        return f"in a new run model.order={max(1, recipe.model.order - 1)}, or less text"
    size, parts = batch_size(recipe), recipe.train.accumulate
    free = []
    if finer := next((n for n in range(2 * parts, size + 1) if size % n == 0), None):
        said = f"train.batch={size} " if not recipe.train.batch else ""
        free.append(
            f"{said}train.accumulate={finer} computes the batch of {size} in smaller parts, with the same result"
        )
    if not recipe.train.gradient_checkpointing and recipe.model.kind == "transformer":
        free.append("train.gradient_checkpointing=true keeps fewer activations")
    fixed = []
    if recipe.data.length >= 32:
        fixed.append(f"data.length={recipe.data.length // 2}")
    if recipe.model.from_ and not recipe.model.lora:
        fixed.append("model.lora=8, which trains few weights")
    if recipe.model.from_:
        fixed.append("a smaller model.from")
    elif recipe.model.depth > 1:
        fixed.append(f"model.depth={recipe.model.depth // 2}")
    again = f" (headway train --resume {folder} …)" if folder is not None and free else ""
    return f"{'; '.join(free)}{again}{'; ' if free else ''}in a new run also {', '.join(fixed)}"


def check_disk(need: Footprint, recipe: Recipe, folder: Path, done: int, model_size: int) -> None:
    """Refuse a run whose remaining checkpoints and model do not fit on the disk; `done` counts the finished steps.

    A user's quota is not visible here: exceeding it ends as an error of the disk.
    """
    settings, size = recipe.train, need.checkpoint
    there = len(list((folder / "run" / "checkpoints").glob("step-*")))
    saves = 1 if settings.steps is None else max(1, math.ceil((settings.steps - done) / settings.save_every))
    retention = max(settings.keep, settings.average)
    at_most = min(there + saves, retention + 1)  # an old checkpoint is deleted after the new one is written
    more = max(max(0, at_most - there) * size, max(0, min(at_most, retention) - there) * size + model_size)
    free = shutil.disk_usage(folder).free
    if more > free:
        what = f"{show(folder)}: the run needs {gigabytes(more)} more disk space, and {gigabytes(free)} are free"
        saved = f"{counted(retention, 'checkpoints')} (train.keep) of {gigabytes(size)} each"
        parts = f"{saved}, a model of {gigabytes(model_size)}"
        hint = "free some space, set train.keep=1, or choose another folder: out=…"
        raise MemoryOrDiskError("M002", f"{what}: {parts}", hint)
