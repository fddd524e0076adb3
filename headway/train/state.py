"""All that changes in a run, as named tensors and plain values: what a checkpoint holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from headway.train.loop import Loop, Progress

Tensors = dict[str, dict[str, Tensor]]


def collect(loop: Loop) -> tuple[Tensors, dict[str, Any]]:
    """Weights, moments and random state by file, and the counters."""
    moments: dict[str, Tensor] = {}
    for name, parameter in loop.model.named_parameters():
        for key, value in loop.optimizer.state.get(parameter, {}).items():
            moments[f"{name}:{key}"] = torch.as_tensor(value)
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    weights = {name: p.detach() for name, p in loop.model.named_parameters()}
    return {"model": weights, "optimizer": moments, "rng": random}, asdict(loop.progress)


@torch.no_grad()
def restore(loop: Loop, tensors: Tensors, counters: dict[str, Any]) -> None:
    """Put a run back to where `collect` found it."""
    for name, parameter in loop.model.named_parameters():
        parameter.copy_(tensors["model"][name])
        prefix = f"{name}:"
        state = {k.removeprefix(prefix): v for k, v in tensors["optimizer"].items() if k.startswith(prefix)}
        if state:
            loop.optimizer.state[parameter] = {
                key: value.to(parameter.device) if value.ndim else value.clone() for key, value in state.items()
            }
    torch.set_rng_state(tensors["rng"]["cpu"])
    if "cuda" in tensors["rng"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["rng"]["cuda"])
    loop.progress = Progress(**counters)
