"""GGUF files, as llama.cpp writes them: dequantized and loaded like other models."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.model import ModelConfig, RopeConfig
from headway.config.toml import short
from headway.errors import ConfigError, DamagedError, nearest
from headway.hub.family import Family, read_config
from headway.hub.gguf.architectures import ARCHITECTURES, Architecture
from headway.hub.gguf.file import GGUFFile, StoredTensor, open_file
from headway.hub.tables import FAMILIES
from headway.jsonfile import show, unreadable
from headway.model.positions import rotary_angles

NAME = re.compile(r"(?:blk\.(?P<block>\d{1,6})\.)?(?P<part>[a-z_]+)\.(?P<leaf>weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"
"""Llama 3.1's scaled rotary positions: the file has one divisor per frequency instead of the settings."""
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Settings that all published models with such divisors share; the factor is the largest divisor."""
REQUIRED = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"),
    "attention.layer_norm_rms_epsilon",
)
READ_ELSEWHERE = (
    *("attention.key_length", "attention.value_length", "rope.dimension_count"),
    *("rope.scaling.type", "rope.scaling.factor"),
)
UNUSED = ("vocab_size", "rope.scaling.original_context_length", "rope.scaling.finetuned", "tensor_data_layout")
PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class GGUFWeights:
    """The tensors of a GGUF file by their Hugging Face names; each is dequantized when it is read."""

    def __init__(self, file: GGUFFile, kind: Architecture, heads: Mapping[str, int]) -> None:
        self._file, self._kind, self._heads = file, kind, heads
        """`heads`: part → number of heads whose rows llama.cpp interleaves."""
        self._names = {_hf_name(name, kind): name for name in file.tensors if name != ROPE_FACTORS}
        self._mapped: Any = None
        kinds = {tensor.format.name for tensor in file.tensors.values() if len(tensor.shape) == 2}
        self._dtype = PLAIN[kinds.pop()] if len(kinds) == 1 and kinds <= PLAIN.keys() else "float32"

    @property
    def names(self) -> list[str]:
        return list(self._names)

    @property
    def total_bytes(self) -> int:
        """Bytes in memory after dequantization."""
        item = 4 if self._dtype == "float32" else 2
        return sum(item * int(np.prod(self.shape(name))) for name in self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._file.tensors[self._names[name]].shape

    def dtype(self, name: str) -> str:
        """One dtype for the whole model: that of its matrices, or float32 if they are quantized."""
        return self._dtype

    def read(self, name: str) -> Tensor:
        whole = torch.empty(self.shape(name), dtype=getattr(torch, self._dtype))
        self.fill(name, whole)
        return whole

    def fill(self, name: str, out: Tensor) -> None:
        """Dequantize a tensor into `out`: contiguous, with the dtype of the model."""
        theirs = self._names[name]
        stored, raw = self._file.tensors[theirs], self._raw(theirs)
        match = NAME.fullmatch(theirs)
        part = match["part"] if match else ""
        if self._kind.raised and part.endswith("norm"):
            _dequantize(self._file, theirs, raw, lowered := torch.empty(stored.shape))
            out.copy_(lowered.sub_(1))
            return
        heads = self._heads.get(part)
        order = None if heads is None else _halves_from_pairs(stored.shape[0], heads)
        if order is not None and len(stored.shape) > 1:  # rows move while they are small
            raw, order = raw.reshape(stored.shape[0], -1)[order], None
        if PLAIN.get(stored.format.name) == self._dtype and order is None:
            out.view(torch.uint8).numpy().reshape(-1)[:] = raw.reshape(-1)
            return
        numbers = out if out.dtype == torch.float32 and order is None else torch.empty(stored.shape)
        _dequantize(self._file, theirs, raw, numbers)
        if numbers is not out:
            out.copy_(numbers if order is None else numbers[order])

    def _raw(self, name: str) -> Any:
        """The bytes of a tensor, mapped."""
        stored: StoredTensor = self._file.tensors[name]
        if self._mapped is None:
            self._mapped = _map(self._file)
        return self._mapped[stored.begin : stored.end]


def gguf_in(place: Path) -> Path | None:
    """The GGUF file of a path: the file itself, or the only one in a folder without config.json."""
    if place.suffix == ".gguf" and place.is_file():
        return place
    if not place.is_dir() or (place / "config.json").exists():
        return None
    found = list(place.glob("*.gguf"))
    return found[0] if len(found) == 1 else None


def open_gguf(path: Path) -> tuple[ModelConfig, Family, str, GGUFWeights]:
    """Config, family, architecture and weights of a GGUF file."""
    file = open_file(path)
    theirs = hf_config(file)
    name, family = file.metadata["general.architecture"], FAMILIES[theirs["model_type"]]
    kind, (architecture, *_) = ARCHITECTURES[name], theirs["architectures"]
    config = read_config(family, theirs)  # this also checks the sizes that are used below
    stack = config.decoder
    assert stack is not None
    for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if (found := file.metadata.get(f"{name}.{key}", stack.head_width)) != stack.head_width:
            message = f"{show(path)}: {name}.{key} = {short(found)}, heads of {stack.head_width}"
            raise ConfigError(
                "C022", message, "headway needs rotary positions over the whole head, and values as wide as keys"
            )
    if "head_dim" in kind.fields.values():
        theirs["head_dim"] = stack.head_width
    if ROPE_FACTORS in file.tensors and stack.rope is not None:
        theirs["rope_scaling"] = _llama3(file, stack.rope.theta, stack.head_width)
    config = read_config(family, theirs)
    heads = {"attn_q": stack.n_heads, "attn_k": stack.kv_heads} if kind.pairs else {}
    return config, family, architecture, GGUFWeights(file, kind, heads)


def _map(file: GGUFFile) -> Any:
    """The bytes of a file, read on first use."""
    try:
        return np.memmap(file.path, np.uint8, "r").view(np.ndarray)  # slices of a memmap are slow
    except OSError as error:
        raise unreadable(file.path, error) from error


def _dequantize(file: GGUFFile, name: str, raw: Any, out: Tensor) -> None:
    stored = file.tensors[name]
    try:
        stored.format.dequantize(raw, out.numpy())
    except NotImplementedError:
        what = f"tensor {show(name)} has the format {stored.format.name}, which the gguf package cannot dequantize"
        raise DamagedError(
            "X001", f"{show(file.path)}: {what}", "use a file with the format Q4_0, Q4_K, Q8_0 or F16"
        ) from None
    except ValueError as error:
        raise DamagedError("X001", f"{show(file.path)}: tensor {show(name)}: {error}") from None


def _halves_from_pairs(rows: int, heads: int) -> Any:
    """The order of rows: llama.cpp rotates neighbouring rows of a head as a pair, Hugging Face one row of each half."""
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _hf_name(name: str, kind: Architecture) -> str:
    """The Hugging Face name; an unknown name stays as it is and is refused later."""
    match = NAME.fullmatch(name)
    if match is None or match["part"] not in kind.tensors:
        return name
    theirs = kind.tensors[match["part"]]
    if ("{i}" in theirs) != (match["block"] is not None):
        return name
    return f"{theirs.replace('{i}', match['block'] or '')}.{match['leaf']}"


def hf_config(file: GGUFFile) -> dict[str, Any]:
    """The metadata of a file as a config.json."""
    metadata, path = file.metadata, show(file.path)
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        hint = nearest(arch, ARCHITECTURES) if isinstance(arch, str) else ""
        known = f"headway reads GGUF of {', '.join(ARCHITECTURES)}"
        raise ConfigError("C020", f"{path}: general.architecture is {short(arch)}{hint}", known)
    kind = ARCHITECTURES[arch]
    own = {key.removeprefix(f"{arch}."): value for key, value in metadata.items() if key.startswith(f"{arch}.")}
    for name in REQUIRED:
        if name not in own:
            raise ConfigError("C004", f"{path}: {arch}.{name} is missing")
    for name, value in own.items():
        if name not in (*kind.fields, *READ_ELSEWHERE, *UNUSED) and value not in (0, False, "", [], 1.0):
            raise ConfigError("C021", f"{path}: {arch}.{name} = {short(value)} is unknown to headway")
        if isinstance(value, list):
            raise ConfigError(
                "C022", f"{path}: {arch}.{name} has a value for each block; headway needs one value for all blocks"
            )
    theirs = {kind.fields[name]: value for name, value in own.items() if name in kind.fields}
    head = next(iter(FAMILIES[kind.family].heads))
    theirs |= {"model_type": kind.family, "architectures": [head], "vocab_size": _vocab(file), **kind.given}
    theirs |= kind.read(own, file.tensors)
    theirs["tie_word_embeddings"] = "output.weight" not in file.tensors
    scaling = own.get("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        hint = "headway knows none, linear, and the divisors of Llama 3"
        raise ConfigError("C022", f"{path}: {arch}.rope.scaling.type = {short(scaling)}", hint)
    if scaling == "linear":
        theirs["rope_scaling"] = {"rope_type": "linear", "factor": own.get("rope.scaling.factor")}
    for ours, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        theirs[f"{ours}_token_id"] = metadata.get(f"tokenizer.ggml.{name}_token_id")
    turn = metadata.get("tokenizer.ggml.eot_token_id")
    if turn is not None and turn != theirs["eos_token_id"]:  # the end of a chat turn ends a text too
        ends = [] if theirs["eos_token_id"] is None else [theirs["eos_token_id"]]
        theirs["eos_token_id"] = [*ends, turn]
    return theirs


def _vocab(file: GGUFFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise DamagedError("X002", f"{show(file.path)}: tensor token_embd.weight is missing")
    return file.tensors["token_embd.weight"].shape[0]


def _llama3(file: GGUFFile, theta: float, width: int) -> dict[str, Any]:
    """Llama 3's settings, if they give the divisors of the file; otherwise an error."""
    stored = file.tensors[ROPE_FACTORS]
    found = torch.empty(math.prod(stored.shape))
    _dequantize(file, ROPE_FACTORS, _map(file)[stored.begin : stored.end], found)
    factor, (low, high, length) = float(found.max()), LLAMA3.values()
    rope = RopeConfig(
        theta=theta, scaling="llama3", factor=factor, low_factor=low, high_factor=high, original_length=int(length)
    )
    plain, stretched = _frequencies(RopeConfig(theta=theta), width), _frequencies(rope, width)
    if found.shape != plain.shape or not torch.allclose(plain / found, stretched, rtol=1e-4):
        message = f"{show(file.path)}: {ROPE_FACTORS} has other divisors than Llama 3"
        raise ConfigError("C022", message, "headway cannot express them")
    return {"rope_type": "llama3", "factor": factor, **LLAMA3}


def _frequencies(config: RopeConfig, width: int) -> Tensor:
    """The angle between two positions, for each pair of a head."""
    cosine, sine = rotary_angles(config, width, torch.ones(1, 1))
    return torch.atan2(sine, cosine).flatten()[: width // 2]
