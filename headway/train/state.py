"""The state of a run as named tensors and plain counters: what a checkpoint holds.

Tensors are saved in full, not as the shards of the processes, so any number of processes can resume a run.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, distributed

from headway.hub.restored import check_saved, other_base
from headway.hub.trainable import frozen_digest, frozen_weights, trainable_weights
from headway.train.distributed import World, full_tensor, shard_like
from headway.train.loop import Loop

RENAMED = {"usual": "loss_ema", "stale": "evals_since_best"}
"""Names of counters in older checkpoints → the fields of `Progress` that they are now."""
Tensors = dict[str, dict[str, Tensor]]


def collect(loop: Loop) -> tuple[Tensors, dict[str, Any]]:
    """The tensors by file (weights, moments, random state, carry) and the counters. Every process has to call it."""
    tensors = {
        "model": {name: full_tensor(p.detach()) for name, p in trainable_weights(loop.model).items()},
        "optimizer": {name: full_tensor(value) for name, value in loop.optimizer.state()},
        "rng": _random_states(loop.world),
    }
    if loop.compute.carry:
        tensors["carry"] = {str(number): part for number, part in enumerate(loop.compute.carry)}
    for name, copies in (("mean", loop.ema), ("best", loop.best)):
        if copies is not None:
            tensors[name] = {key: full_tensor(value) for key, value in copies.tensors.items()}
    return tensors, {**asdict(loop.progress), "base": _base_digest(loop)}


@torch.no_grad()
def restore(loop: Loop, tensors: Tensors, counters: dict[str, Any]) -> None:
    """Put a run back into the state that `collect` returned."""
    counters = {RENAMED.get(name, name): value for name, value in counters.items()}
    counters.setdefault("decay_from_start", True)  # older checkpoints do not say, and it is true of them
    if counters.pop("base") != _base_digest(loop):
        raise other_base()
    load_weights(trainable_weights(loop.model), tensors["model"])
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
            load_weights(copies.tensors, tensors[key])
    if loop.compute.carry:
        loop.compute.carry = tuple(tensors["carry"][str(n)].to(p.device) for n, p in enumerate(loop.compute.carry))
    _set_random_state(tensors["rng"], loop.world)
    loop.restart(counters)


@torch.no_grad()
def load_weights(weights: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    """Copy saved full tensors into weights, which may be sharded."""
    check_saved(weights, saved)
    for name, tensor in weights.items():
        tensor.copy_(shard_like(saved[name], tensor))


def _base_digest(loop: Loop) -> str:
    return frozen_digest((name, full_tensor(p)) for name, p in frozen_weights(loop.model))


def _random_states(world: World) -> dict[str, Tensor]:
    """The random state of every process: `cpu.0`, `cpu.1`, …, and `cuda.0`, … of their GPUs."""
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
    """Restore this process's random state. A process with a new rank keeps the state that it started with."""
    if (state := states.get(f"cpu.{world.rank}")) is not None:
        torch.set_rng_state(state)
    if world.device.type == "cuda" and (state := states.get(f"cuda.{world.rank}")) is not None:
        torch.cuda.set_rng_state(state, world.device)
