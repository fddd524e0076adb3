"""Model folders in the Hugging Face layout: opened, loaded, saved."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from headway.baselines.build import make_model
from headway.config.model import ModelConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.toml import short, to_dict
from headway.data.images.preprocess import FILE as PREPROCESSOR
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.errors import ConfigError, HeadwayError, MemoryOrDiskError, NotFoundError, nearest
from headway.hub.adapter import adapter_chain, is_adapter, merge_adapter
from headway.hub.convert import dump_tensors, load_tensors, tensor_names
from headway.hub.download import side_file, tokenizer_folder
from headway.hub.family import Family, architecture_in, read_config, refuse_code, relative_of, write_config
from headway.hub.generation_config import copied_settings, special_ids
from headway.hub.gguf.model import GGUFWeights, gguf_in, open_gguf
from headway.hub.gguf.tokenizer import load_gguf_tokenizer
from headway.hub.restored import TensorSource, is_restorable, own_config, restored_model
from headway.hub.run_names import run_folders
from headway.hub.tables import FAMILIES, TOWERS
from headway.hub.tables.clip import inference_only
from headway.hub.vectors.header import vectors_header
from headway.hub.vectors.model import load_words, open_vectors
from headway.hub.weights import Weights, open_weights, write_weights
from headway.jsonfile import read_json
from headway.model.model import Model
from headway.resources import write_error

CONFIG_LIMIT = 1_000_000
"""Bytes of a config.json: enough for thousands of labels, and a hostile file stays small in memory."""
OWN_ARCHITECTURE = "HeadwayModel"
"""The architecture of a model that no family of `transformers` can express."""


@dataclass(frozen=True)
class OpenedFolder:
    """A folder after its config.json and the headers of its weights were read; no tensor was read."""

    config: AnyConfig
    family: Family | None
    architecture: str
    weights: Weights | GGUFWeights | TensorSource
    step: int | None = None
    """The step of the checkpoint that the weights are of."""


def open_folder(folder: Path) -> OpenedFolder:
    """Read config.json and check the headers of the weights; other files have both in one."""
    if (path := gguf_in(folder)) is not None:
        return OpenedFolder(*open_gguf(path))
    if vectors_header(folder):
        config, rows = open_vectors(folder)
        return OpenedFolder(config, None, OWN_ARCHITECTURE, rows)
    if is_restorable(folder):
        return _opened_model(*restored_model(folder, load_model))
    if not (folder / "config.json").exists():
        if folder.is_dir() and (inside := run_folders(folder)):
            hint = f"name one of them, such as {inside[-1]}"
            raise NotFoundError("F002", f"{folder} is a folder of runs, not a model", hint)
        raise NotFoundError("F002", f"{folder} has no config.json", "a model folder has config.json and weights")
    theirs = read_json(folder / "config.json", limit=CONFIG_LIMIT)
    refuse_code(theirs)
    opened = _opened(theirs, open_weights(folder))
    return replace(opened, config=_with_generation_ids(opened.config, folder))


def _opened(theirs: Mapping[str, Any], weights: Weights | TensorSource) -> OpenedFolder:
    """The config that a config.json describes, beside its weights."""
    kind = theirs.get("model_type")
    if kind == "headway":
        return OpenedFolder(_own_config(theirs), None, OWN_ARCHITECTURE, weights)
    known = FAMILIES | TOWERS
    if not isinstance(kind, str) or kind not in known:
        what = f"config.json: model_type {short(kind)}{nearest(str(kind), known)}"
        raise ConfigError("C020", what, f"headway knows {len(known)} families; {relative_of(theirs, FAMILIES)}")
    if kind in TOWERS:
        both, read, _ = TOWERS[kind]
        return OpenedFolder(read(theirs, weights.names), both, architecture_in(both, theirs), weights)
    family = FAMILIES[kind]
    return OpenedFolder(read_config(family, theirs, weights.names), family, architecture_in(family, theirs), weights)


def _opened_model(step: int, model: Model) -> OpenedFolder:
    """A model in memory as its folder would be opened: a checkpoint gives the same as the finished run, to the bit."""
    family, theirs = describe(model)
    weights = TensorSource(dict(dump_tensors(model, family, theirs["architectures"][0])))
    opened = _opened(theirs, weights)
    return replace(opened, config=replace(opened.config, special=model.config.special), step=step)


def _with_generation_ids(config: AnyConfig, folder: Path) -> AnyConfig:
    """The config with the special ids of generation_config.json: chat models have several end tokens there."""
    if config.lm is None or config.decoder is None or not (ids := special_ids(folder)):
        return config
    return replace(config, special=replace(config.special, **ids))


def _own_config(theirs: Mapping[str, Any]) -> AnyConfig:
    inner = theirs.get("headway")
    if not isinstance(inner, Mapping):
        raise ConfigError("C004", 'config.json: model_type "headway" needs a "headway" table')
    return own_config(inner)


def load_model(folder: Path, dtype: torch.dtype | None = None, device: str | torch.device = "cpu") -> Model:
    """The model of a folder, in evaluation mode, with the dtype of the file or `dtype`."""
    if is_adapter(folder):
        base, above = adapter_chain(folder)
        model = load_model(base, dtype, device)
        for adapter in above:
            merge_adapter(model, adapter)
        return model
    return load_opened(open_folder(folder), dtype, device)


def load_opened(opened: OpenedFolder, dtype: torch.dtype | None, device: str | torch.device) -> Model:
    """The model of an opened folder, in evaluation mode."""
    check_memory(opened.weights.total_bytes * (2 if dtype == torch.float32 else 1))
    with torch.device("meta"):
        model = make_model(opened.config)
    load_tensors(model, opened.family, opened.architecture, opened.weights)
    stored = getattr(torch, opened.weights.dtype(opened.weights.names[0]))
    one = stored.is_floating_point and opened.config.quantization == "none"  # quantized files hold several dtypes
    return model.to(device=device, dtype=dtype or (stored if one else None)).eval()


def check_memory(need: int) -> None:
    """Refuse a model that does not fit into memory, before the machine swaps."""
    if not hasattr(os, "sysconf"):
        return
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > total:
        raise MemoryOrDiskError(
            "M001", f"the weights need {need / 1e9:.1f} GB, this machine has {total / 1e9:.1f} GB of memory"
        )


def load_folder_tokenizer(folder: Path, config: AnyConfig) -> Tokenizer | None:
    """The tokenizer of a folder; None for a model without text, and for a folder without one."""
    fronts = config.fronts if isinstance(config, TwoTowersConfig) else (config.source, config.target)
    if "tokens" not in [getattr(front, "kind", "") for front in fronts]:
        return None
    try:
        return read_tokenizer(folder)
    except NotFoundError:
        return None


def own_layout(folder: Path) -> bool:
    """Whether a folder has headway's own layout, which no other library opens."""
    return bool(read_json(folder / "config.json").get("model_type") == "headway")


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, of a GGUF file, or of a file of word vectors."""
    folder = tokenizer_folder(folder)
    if vectors_header(folder):
        return load_words(folder)
    path = gguf_in(folder)
    return load_tokenizer(folder) if path is None else load_gguf_tokenizer(path)


def save_model(model: Model, folder: Path, tokenizer: Tokenizer | None = None, base: Path | None = None) -> Path:
    """Write a model folder, which `transformers` opens if it knows the family. On an error nothing is left behind.

    Generation settings, and how images are prepared, are copied from the folder `base`.
    """
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise NotFoundError("F004", f"{folder} already exists and is not an empty folder", "choose another folder")
    with _staged_files(model, folder, tokenizer, copied_settings(base)) as partial:
        if base is not None and (prepared := side_file(base, PREPROCESSOR)) is not None:
            shutil.copyfile(prepared, partial / PREPROCESSOR)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    return folder


def write_model_files(model: Model, folder: Path, tokenizer: Tokenizer | None = None, base: Path | None = None) -> Path:
    """Write the same files into a folder that holds other files too, such as a run; config.json comes last.

    Generation settings are copied from the folder `base`.
    """
    with _staged_files(model, folder, tokenizer, copied_settings(base)) as partial:
        for path in sorted(partial.iterdir(), key=lambda p: p.name == "config.json"):
            os.replace(path, folder / path.name)
    return folder


def write_side_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Write JSON files that belong to a model, such as preprocessor_config.json, each complete or not at all."""
    for name, values in files.items():
        partial = folder / f"{name}.partial-{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_json(partial, values)
            os.replace(partial, folder / name)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise write_error(folder, error) from None


@contextmanager
def _staged_files(
    model: Model, folder: Path, tokenizer: Tokenizer | None, rules: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Path]:
    """The complete files in a temporary folder beside `folder`, to be moved from there; deleted at the end."""
    family, theirs = describe(model)
    theirs["dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        write_weights(partial, dump_tensors(model, family, theirs["architectures"][0]))
        _write_json(partial / "config.json", theirs)
        if model.config.lm and model.config.decoder:
            _write_json(partial / "generation_config.json", {**_generation_ids(model.config), **rules})
        if tokenizer is not None:
            tokenizer.save(partial)
        yield partial
    except OSError as error:
        raise write_error(folder, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def describe(model: Model) -> tuple[Family | None, dict[str, Any]]:
    """config.json in the layout of the family if it can express this model exactly, otherwise in headway's own."""
    config, family = model.config, FAMILIES.get(model.config.family)
    if family is not None and isinstance(config, ModelConfig):
        config = _without_stochastic_depth(config, family)
        try:
            theirs = write_config(family, config)
            back = read_config(family, theirs, tensor_names(model, family, theirs["architectures"][0]))
            if back == replace(config, init=back.init):  # config.json does not hold the initialisation
                return family, theirs
        except HeadwayError:
            pass  # the family cannot express this variant
    if isinstance(config, TwoTowersConfig) and config.family in TOWERS:
        both, read, write = TOWERS[config.family]
        with suppress(HeadwayError):  # a tower may have a variant that the family cannot express
            theirs = write(config)
            if inference_only(read(theirs)) == inference_only(config):
                return both, theirs
    own = to_dict(replace(config, family="headway") if isinstance(config, ModelConfig) else config)
    return None, {"model_type": "headway", "architectures": [OWN_ARCHITECTURE], "headway": own}


def _without_stochastic_depth(config: ModelConfig, family: Family) -> ModelConfig:
    """The config of a family that has no name for stochastic depth, which acts in training only."""
    if config.encoder is None or any("encoder.drop_path" in field.ours for field in family.fields):
        return config
    return replace(config, encoder=replace(config.encoder, drop_path=0.0))


def _generation_ids(config: AnyConfig) -> dict[str, Any]:
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
