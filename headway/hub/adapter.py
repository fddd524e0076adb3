"""Adapters on disk: a small folder that names the model it belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from headway.errors import ConfigError, DamagedError, NotFoundError
from headway.hub.weights import FORMAT, open_file, write_tensors
from headway.jsonfile import read_json
from headway.matrices.lowrank import LowRank, add_adapters, merge_adapters
from headway.model.model import Model

FACTS = "adapter.json"
TENSORS = "adapter.safetensors"


def is_adapter(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def write_adapter(model: nn.Module, folder: Path, base: str, rank: int, targets: Sequence[str]) -> None:
    """The adapters of a model, and where its other weights are; the facts come last."""
    tensors: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, LowRank):
            tensors |= {f"{name}.narrow": module.narrow.detach(), f"{name}.widen": module.widen.detach()}
    partial = folder / f"{TENSORS}.partial-{os.getpid()}"
    write_tensors(partial, tensors, FORMAT)
    partial.replace(folder / TENSORS)
    base = str(Path(base).absolute()) if os.path.exists(base) else base
    facts = {"base": base, "rank": rank, "targets": list(targets)}
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def adapter_base(folder: Path) -> str:
    """The model an adapter belongs to."""
    base = read_json(folder / FACTS).get("base")
    if not isinstance(base, str):
        raise NotFoundError("F002", f"{folder / FACTS} does not say which model it belongs to")
    return base


@torch.no_grad()
def merge_adapter(model: Model, folder: Path) -> None:
    """Add what an adapter learned to the weights of its base model."""
    if model.config.quantization != "none":
        why = "an adapter is added to the matrices it was trained beside, and those of its base model are quantised"
        raise ConfigError("C004", f"{folder}: {why}", "merge it first: headway export ADAPTER OUT quant=int8")
    facts, saved = read_json(folder / FACTS), open_file(folder / TENSORS)
    rank, targets = facts.get("rank"), facts.get("targets")
    if type(rank) is not int or not isinstance(targets, list):
        raise DamagedError("X001", f"{folder / FACTS}: rank and targets are missing")
    add_adapters(model, rank, targets)
    for name, parameter in model.named_parameters():
        if not name.endswith((".narrow", ".widen")):
            continue
        if saved.shape(name) != tuple(parameter.shape):
            what = f"{name} is {saved.shape(name)}, the base model asks for {tuple(parameter.shape)}"
            raise DamagedError("X003", f"{folder / TENSORS}: {what}")
        parameter.copy_(saved.read(name))
    merge_adapters(model)
    model.requires_grad_(True)
