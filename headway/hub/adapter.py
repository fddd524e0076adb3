"""Adapter folders: small weights, and the name of the model that they belong to."""

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
from headway.hub.weights import FORMAT, Weights, open_file, write_tensors, writing
from headway.jsonfile import read_json
from headway.kernels.lora import ADAPTER_SUFFIXES, LoRALinear, add_adapters, merge_adapters
from headway.model.model import Model

CONFIG_FILE = "adapter.json"
WEIGHTS_FILE = "adapter.safetensors"
CONFIG_LIMIT = 100_000
"""Bytes of adapter.json."""
MAX_ADAPTERS = 16
"""Adapters on top of adapters: a longer chain can only be a circle."""


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file()


def write_adapter(model: nn.Module, folder: Path, base: str, rank: int, targets: Sequence[str]) -> None:
    """Write the adapters of a model and the name of its base model; adapter.json comes last."""
    tensors: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            tensors |= {f"{name}.narrow": module.narrow.detach(), f"{name}.widen": module.widen.detach()}
    partial = folder / f"{WEIGHTS_FILE}.partial-{os.getpid()}"
    write_tensors(partial, tensors, FORMAT)
    partial.replace(folder / WEIGHTS_FILE)
    base = str(Path(base).absolute()) if os.path.exists(base) else base
    config = {"base": base, "rank": rank, "targets": list(targets)}
    with writing(folder, 0):
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def adapter_base(folder: Path) -> Path:
    """The folder of an adapter's base model. A file names it, so it is never downloaded."""
    base = read_json(folder / CONFIG_FILE, CONFIG_LIMIT).get("base")
    if not isinstance(base, str):
        raise NotFoundError("F002", f"{folder / CONFIG_FILE} does not name its base model")
    try:
        return resolve(base, local=True)
    except NotFoundError as error:
        what = f"{folder / CONFIG_FILE} names a base model that is not there: {error.message}"
        raise NotFoundError(error.code, what, error.hint) from None


def adapter_chain(folder: Path) -> tuple[Path, list[Path]]:
    """The base model of an adapter, and the adapters to merge into it, in order."""
    above: list[Path] = []
    while is_adapter(folder):
        if len(above) == MAX_ADAPTERS:
            raise DamagedError(
                "X001", f"{above[0] / CONFIG_FILE}: more than {MAX_ADAPTERS} adapters, each the base of the next"
            )
        above.append(folder)
        folder = adapter_base(folder)
    return folder, above[::-1]


@torch.no_grad()
def merge_adapter(model: Model, folder: Path) -> None:
    """Merge an adapter into the weights of its base model."""
    if model.config.quantization != "none":
        why = "the base model is quantized, and an adapter needs the matrices that it was trained with"
        raise ConfigError(
            "C004", f"{folder}: {why}", "merge first, then quantize: headway export ADAPTER OUT quant=int8"
        )
    config, saved = read_json(folder / CONFIG_FILE, CONFIG_LIMIT), open_file(folder / WEIGHTS_FILE)
    rank, targets = config.get("rank"), config.get("targets")
    if type(rank) is not int or not isinstance(targets, list):
        raise DamagedError("X001", f"{folder / CONFIG_FILE}: rank and targets are missing")
    if not 1 <= rank <= MAX_WIDTH:
        raise DamagedError("X001", f"{folder / CONFIG_FILE}: rank = {short(rank)} is outside 1 … {MAX_WIDTH}")
    _check_tensors(model, saved, rank, targets, folder / WEIGHTS_FILE)
    add_adapters(model, rank, targets)
    for name, parameter in model.named_parameters():
        if name.endswith(ADAPTER_SUFFIXES):
            parameter.copy_(saved.read(name))
    merge_adapters(model)
    model.requires_grad_(True)


def _check_tensors(model: Model, saved: Weights, rank: int, targets: Sequence[object], path: Path) -> None:
    """Compare rank and targets with the header of the file before anything is allocated."""
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
