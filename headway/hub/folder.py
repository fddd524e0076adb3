"""Model folders in the Hugging Face layout: read, written, and refused with a reason."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch

from headway.baselines import make_model
from headway.config.baselines import BaselineConfig
from headway.config.model import ModelConfig
from headway.config.toml import build, short, to_dict
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.errors import ConfigError, HeadwayError, MemoryOrDiskError, NotFoundError, nearest
from headway.hub.adapter import adapters_over, is_adapter, merge_adapter
from headway.hub.convert import dump_tensors, load_tensors, tensor_names
from headway.hub.family import Family, architecture_in, read_config, refuse_code, write_config
from headway.hub.generation_config import rules_in, special_in
from headway.hub.gguf.model import GGUFWeights, gguf_in, open_gguf
from headway.hub.gguf.tokenizer import load_gguf_tokenizer
from headway.hub.tables import FAMILIES
from headway.hub.weights import Weights, open_weights, write_weights
from headway.jsonfile import read_json
from headway.model.model import Model

CONFIG_LIMIT = 1_000_000
"""Bytes of a config.json: thousands of label names fit, a hostile one stays small in memory."""
OWN = "HeadwayModel"
"""Architecture written for a model that no family of `transformers` can express."""


@dataclass(frozen=True)
class Opened:
    """A folder whose config.json and weight headers have been read and agree; no tensor has."""

    config: ModelConfig
    family: Family | None
    architecture: str
    weights: Weights | GGUFWeights


def open_folder(folder: Path) -> Opened:
    """Read config.json and check the weights' headers; or the header of a GGUF file, which holds both."""
    if (path := gguf_in(folder)) is not None:
        return Opened(*open_gguf(path))
    if not (folder / "config.json").exists():
        if (folder / "run" / "recipe.toml").exists():
            hint = f"go on with it: headway train --resume {shlex.quote(str(folder))}"
            raise NotFoundError("F002", f"{folder} is a run that has not come to its end: it has no model yet", hint)
        raise NotFoundError("F002", f"{folder} has no config.json", "a model folder has config.json and weights")
    theirs = read_json(folder / "config.json", limit=CONFIG_LIMIT)
    refuse_code(theirs)
    kind = theirs.get("model_type")
    weights = open_weights(folder)
    if kind == "headway":
        return Opened(_as_generated(_own(theirs), folder), None, OWN, weights)
    if not isinstance(kind, str) or kind not in FAMILIES:
        hint = nearest(str(kind), FAMILIES)
        raise ConfigError(
            "C020", f"config.json: model_type {short(kind)}{hint}", f"headway knows {', '.join(FAMILIES)}"
        )
    family = FAMILIES[kind]
    config = _as_generated(read_config(family, theirs, weights.names), folder)
    return Opened(config, family, architecture_in(family, theirs), weights)


def _as_generated(config: ModelConfig, folder: Path) -> ModelConfig:
    """The config of a model that writes, with the special ids of generation_config.json: chats end by several."""
    if config.lm is None or config.decoder is None or not (ids := special_in(folder)):
        return config
    return replace(config, special=replace(config.special, **ids))


def _own(theirs: Mapping[str, Any]) -> ModelConfig:
    inner = theirs.get("headway")
    if not isinstance(inner, Mapping):
        raise ConfigError("C004", 'config.json: model_type "headway" needs a "headway" table')
    if "network" in inner:
        return cast(ModelConfig, build(BaselineConfig, inner))  # which has the surface of one
    return build(ModelConfig, inner)


def load_model(folder: Path, dtype: torch.dtype | None = None, device: str | torch.device = "cpu") -> Model:
    """The model of a folder, in evaluation mode; weights keep the type of the file unless `dtype` is given."""
    if is_adapter(folder):
        base, above = adapters_over(folder)
        model = load_model(base, dtype, device)
        for adapter in above:
            merge_adapter(model, adapter)
        return model
    opened = open_folder(folder)
    check_memory(opened.weights.total_bytes * (2 if dtype == torch.float32 else 1))
    with torch.device("meta"):
        model = make_model(opened.config)
    load_tensors(model, opened.family, opened.architecture, opened.weights)
    stored = getattr(torch, opened.weights.dtype(opened.weights.names[0]))
    one = stored.is_floating_point and opened.config.quantization == "none"  # quantised files hold several types
    return model.to(device=device, dtype=dtype or (stored if one else None)).eval()


def check_memory(need: int) -> None:
    """Refuse a model of so many bytes before it makes the machine swap."""
    if not hasattr(os, "sysconf"):
        return
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > total:
        raise MemoryOrDiskError(
            "M001", f"the weights need {need / 1e9:.1f} GB, this machine has {total / 1e9:.1f} GB of memory"
        )


def load_folder_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer | None:
    """The folder's tokenizer; None for a model that reads no text, and where the weights came alone."""
    if "tokens" not in (getattr(config.source, "kind", ""), getattr(config.target, "kind", "")):
        return None
    try:
        return read_tokenizer(folder)
    except NotFoundError:
        return None


def own_layout(folder: Path) -> bool:
    """Whether a folder is in headway's own layout, which no other library opens."""
    return bool(read_json(folder / "config.json").get("model_type") == "headway")


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder or of a GGUF file."""
    path = gguf_in(folder)
    return load_tokenizer(folder) if path is None else load_gguf_tokenizer(path)


def save_model(model: Model, folder: Path, tokenizer: Tokenizer | None = None, base: Path | None = None) -> Path:
    """Write a folder that `transformers` opens where it knows the family, complete or not at all.

    How the model generates it has from its `base`.
    """
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise NotFoundError("F004", f"{folder} already exists and is not an empty folder", "choose another folder")
    with _partial(model, folder, tokenizer, rules_in(base)) as partial:
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    return folder


def write_model_files(model: Model, folder: Path, tokenizer: Tokenizer | None = None, base: Path | None = None) -> Path:
    """The same files into a folder that holds other things too, such as a run; config.json comes last.

    How the model generates it has from its `base`.
    """
    with _partial(model, folder, tokenizer, rules_in(base)) as partial:
        for path in sorted(partial.iterdir(), key=lambda p: p.name == "config.json"):
            os.replace(path, folder / path.name)
    return folder


@contextmanager
def _partial(
    model: Model, folder: Path, tokenizer: Tokenizer | None, rules: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Path]:
    """The finished files under another name beside the folder, to be moved from there; gone if anything fails."""
    family, theirs = describe(model)
    theirs["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        write_weights(partial, dump_tensors(model, family, theirs["architectures"][0]))
        _write_json(partial / "config.json", theirs)
        if model.config.lm and model.config.decoder:
            _write_json(partial / "generation_config.json", {**_generation(model.config), **rules})
        if tokenizer is not None:
            tokenizer.save(partial)
        yield partial
    except OSError as error:
        raise MemoryOrDiskError("M002", f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def describe(model: Model) -> tuple[Family | None, dict[str, Any]]:
    """The family's config.json if it can express this model to the letter, otherwise headway's own."""
    config, family = model.config, FAMILIES.get(model.config.family)
    if family is not None:
        try:
            theirs = write_config(family, config)
            back = read_config(family, theirs, tensor_names(model, family, theirs["architectures"][0]))
            if back == replace(config, init=back.init):  # how the weights once started is not in the file
                return family, theirs
        except HeadwayError:
            pass  # a variant the family has no word for
    own = to_dict(config if isinstance(config, BaselineConfig) else replace(config, family="headway"))
    return None, {"model_type": "headway", "architectures": [OWN], "headway": own}


def _generation(config: ModelConfig) -> dict[str, Any]:
    special = config.special
    pairs = {
        "bos_token_id": special.bos,
        "eos_token_id": list(special.eos) if isinstance(special.eos, tuple) else special.eos,
        "pad_token_id": special.pad,
        "decoder_start_token_id": special.start,
    }
    return {k: v for k, v in pairs.items() if v is not None}


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
