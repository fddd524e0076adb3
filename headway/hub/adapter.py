"""Adapters on disk: a small folder that names the model it belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from headway.config.model import MAX_WIDTH
from headway.config.toml import short
from headway.errors import ConfigError, DamagedError, NotFoundError
from headway.hub.convert import FLOATS
from headway.hub.download import resolve
from headway.hub.weights import FORMAT, Weights, open_file, write_tensors
from headway.jsonfile import read_json
from headway.model.lora import ADAPTER_SUFFIXES, LoRALinear, add_adapters, merge_adapters
from headway.model.model import Model

FACTS = "adapter.json"
TENSORS = "adapter.safetensors"
FACTS_LIMIT = 100_000
"""Bytes of adapter.json."""
MAX_CHAIN = 16
"""Adapters of adapters: more are not stacked, they go round in a circle."""


def is_adapter(folder: Path) -> bool:
    return (folder / FACTS).is_file()


def write_adapter(model: nn.Module, folder: Path, base: str, rank: int, targets: Sequence[str]) -> None:
    """The adapters of a model, and where its other weights are; the facts come last."""
    tensors: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            tensors |= {f"{name}.narrow": module.narrow.detach(), f"{name}.widen": module.widen.detach()}
    partial = folder / f"{TENSORS}.partial-{os.getpid()}"
    write_tensors(partial, tensors, FORMAT)
    partial.replace(folder / TENSORS)
    base = str(Path(base).absolute()) if os.path.exists(base) else base
    facts = {"base": base, "rank": rank, "targets": list(targets)}
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def adapter_base(folder: Path) -> Path:
    """Where the model is that an adapter belongs to. Its name comes from a file, so nothing is fetched for it."""
    base = read_json(folder / FACTS, FACTS_LIMIT).get("base")
    if not isinstance(base, str):
        raise NotFoundError("F002", f"{folder / FACTS} does not say which model it belongs to")
    try:
        return resolve(base, local=True)
    except NotFoundError as error:
        what = f"{folder / FACTS} belongs to a model that is not there: {error.message}"
        raise NotFoundError(error.code, what, error.hint) from None


def adapters_over(folder: Path) -> tuple[Path, list[Path]]:
    """The model at the bottom and the adapters above it, lowest first."""
    above: list[Path] = []
    while is_adapter(folder):
        if len(above) == MAX_CHAIN:
            raise DamagedError("X001", f"{above[0] / FACTS}: more than {MAX_CHAIN} adapters, each the base of the next")
        above.append(folder)
        folder = adapter_base(folder)
    return folder, above[::-1]


@torch.no_grad()
def merge_adapter(model: Model, folder: Path) -> None:
    """Add what an adapter learned to the weights of its base model."""
    if model.config.quantization != "none":
        why = "an adapter is added to the matrices it was trained beside, and those of its base model are quantised"
        raise ConfigError("C004", f"{folder}: {why}", "merge it first: headway export ADAPTER OUT quant=int8")
    facts, saved = read_json(folder / FACTS, FACTS_LIMIT), open_file(folder / TENSORS)
    rank, targets = facts.get("rank"), facts.get("targets")
    if type(rank) is not int or not isinstance(targets, list):
        raise DamagedError("X001", f"{folder / FACTS}: rank and targets are missing")
    if not 1 <= rank <= MAX_WIDTH:
        raise DamagedError("X001", f"{folder / FACTS}: rank = {short(rank)} is outside 1 … {MAX_WIDTH}")
    _check_tensors(model, saved, rank, targets, folder / TENSORS)
    add_adapters(model, rank, targets)
    for name, parameter in model.named_parameters():
        if name.endswith(ADAPTER_SUFFIXES):
            parameter.copy_(saved.read(name))
    merge_adapters(model)
    model.requires_grad_(True)


def _check_tensors(model: Model, saved: Weights, rank: int, targets: Sequence[object], path: Path) -> None:
    """Compare what rank and targets claim with the header of the file, before anything is allocated for them."""
    wanted: dict[str, tuple[int, ...]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in targets:
            wanted[f"{name}.narrow"] = (rank, module.in_features)
            wanted[f"{name}.widen"] = (module.out_features, rank)
    if not wanted:
        raise DamagedError("X002", f"{path}: no matrix of the base model is one of {short(list(targets))}")
    for name, shape in wanted.items():
        if saved.shape(name) != shape:
            raise DamagedError("X003", f"{path}: {name} is {short(saved.shape(name))}, the base model asks for {shape}")
        if saved.dtype(name) not in FLOATS:
            raise DamagedError("X001", f"{path}: {name} is of {saved.dtype(name)}; headway reads {', '.join(FLOATS)}")
    if strange := [name for name in saved.names if name not in wanted]:
        raise DamagedError("X004", f"{path}: {short(strange[0])} belongs to no matrix of the base model")
