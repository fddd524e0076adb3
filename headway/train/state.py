"""All that changes in a run, as named tensors and plain values: what a checkpoint holds.

Tensors are whole there, whoever had shares of them: a run goes on with any number of processes.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, distributed, nn

from headway.errors import DamagedError
from headway.train.distributed import World, full_tensor, shard_like
from headway.train.loop import Loop
from headway.train.optim.average import trainable_weights

OTHER = "the recipe or the data have changed: put them back, or start a new run"
Tensors = dict[str, dict[str, Tensor]]


def collect(loop: Loop) -> tuple[Tensors, dict[str, Any]]:
    """Weights, moments and random state by file, and the counters. Every process has to take part."""
    tensors = {
        "model": {name: full_tensor(p.detach()) for name, p in trainable_weights(loop.model).items()},
        "optimizer": {name: full_tensor(value) for name, value in loop.optimizer.state()},
        "rng": _random_states(loop.world),
    }
    for name, copies in (("mean", loop.ema), ("best", loop.best)):
        if copies is not None:
            tensors[name] = {key: full_tensor(value) for key, value in copies.tensors.items()}
    return tensors, {**asdict(loop.progress), "base": frozen_digest(loop.model)}


@torch.no_grad()
def restore(loop: Loop, tensors: Tensors, counters: dict[str, Any]) -> None:
    """Put a run back to where `collect` found it."""
    # checkpoints of before say `usual` and `stale`, and nothing of `decay_from_start`, which is true of them
    names = {"usual": "loss_ema", "stale": "evals_since_best"}
    counters = {"decay_from_start": True, **{names.get(key, key): value for key, value in counters.items()}}
    if counters.pop("base") != frozen_digest(loop.model):
        raise DamagedError(
            "X008", "the weights of model.from are not those the run began with", "put them back, or start a new run"
        )
    _load(trainable_weights(loop.model), tensors["model"])
    moments: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors["optimizer"].items():
        owner, _, key = name.rpartition(":")
        moments.setdefault(owner, {})[key] = value
    for name, state in moments.items():
        like = loop.optimizer.named[name]
        own = {key: shard_like(value, like) if value.ndim else value.to(like.device) for key, value in state.items()}
        loop.optimizer.owner(like).state[like] = own
    for key, copies in (("mean", loop.ema), ("best", loop.best)):
        if copies is not None and key in tensors:
            _load(copies.tensors, tensors[key])
    _set_random_state(tensors["rng"], loop.world)
    loop.restart(counters)


@torch.no_grad()
def load_weights(loop: Loop, weights: dict[str, Tensor]) -> None:
    """Other weights into the model that a run trains."""
    _load(trainable_weights(loop.model), weights)


def _load(mine: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    for name, tensor in mine.items():
        if name not in saved:
            raise DamagedError("X002", f"the checkpoint has no tensor {name}", OTHER)
        if saved[name].shape != tensor.shape:  # copy_ would spread a smaller one over a larger
            shapes = f"{list(saved[name].shape)}, the model's {list(tensor.shape)}"
            raise DamagedError("X003", f"the checkpoint's {name} has the shape {shapes}", OTHER)
        tensor.copy_(shard_like(saved[name], tensor))


def frozen_digest(model: nn.Module) -> str:
    """Stands for the weights that training leaves alone, which no checkpoint holds."""
    digest = hashlib.sha256()
    for name, p in model.named_parameters():
        if not p.requires_grad:
            digest.update(f"{name} {float(full_tensor(p.detach()).double().sum())!r}".encode())
    return digest.hexdigest()


def _random_states(world: World) -> dict[str, Tensor]:
    """Every process draws its own numbers: `cpu.0`, `cpu.1`, …, and the same for its GPU."""
    own = {"cpu": torch.get_rng_state()}
    if world.device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(world.device)
    states: dict[str, Tensor] = {}
    for kind, state in own.items():
        everyone = [torch.empty_like(state, device=world.device) for _ in range(world.size)]
        if world.size > 1:
            distributed.all_gather(everyone, state.to(world.device))
        else:
            everyone = [state]
        states |= {f"{kind}.{rank}": one.cpu() for rank, one in enumerate(everyone)}
    return states


def _set_random_state(states: dict[str, Tensor], world: World) -> None:
    """A process that was not there when the run was saved keeps the state it was given at the start."""
    if (state := states.get(f"cpu.{world.rank}")) is not None:
        torch.set_rng_state(state)
    if world.device.type == "cuda" and (state := states.get(f"cuda.{world.rank}")) is not None:
        torch.cuda.set_rng_state(state, world.device)
