"""Tensors from a family's names and shapes to ours, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headway.config.model import ModelConfig, StackConfig
from headway.config.toml import short
from headway.errors import DamagedError
from headway.hub.family import Family, copies_of, prefix_of, tensors_of
from headway.model.model import Model
from headway.model.positions import sinusoidal

FLOATS = ("float32", "bfloat16", "float16", "float64")
"""Types of number a model computes with; others are of quantised files, which need their own scales."""


class Source(Protocol):
    """Tensors by name, opened but not read."""

    @property
    def names(self) -> list[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> str: ...
    def read(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class Piece:
    """One of our parameters and the tensors it is stacked from."""

    ours: str
    theirs: tuple[str, ...]
    op: str
    rows: tuple[int, ...]
    """How many of our rows each of theirs fills."""
    absent: int | None = None
    """Index of the part the family does not store (a bias that is always zero)."""


def load_tensors(model: Model, family: Family | None, architecture: str, source: Source) -> None:
    """Fill the model strictly: every parameter found, of the right shape, and nothing left over unexplained."""
    by_name = {_modern(name): name for name in source.names}
    prefix = "" if family is None else _find_prefix(family, architecture, by_name)
    pieces = plan(model, family, architecture, prefix)
    if family is not None:
        _check_copies(copies_of(family, architecture, prefix), pieces, source, by_name)
        _check_sines([name.replace("{prefix}", prefix) for name in family.sines], model.config, source, by_name)
    state: dict[str, Tensor] = {}
    for piece, parameter in pieces:
        stored = [_stored_shape(piece, i, parameter.shape, model.config) for i in range(len(piece.theirs))]
        _check(piece, stored, ("int8",) if parameter.dtype == torch.int8 else FLOATS, source, by_name)
    _refuse_strangers(family, model.config, prefix, pieces, by_name)
    for piece, parameter in pieces:
        parts = [_read(piece, i, parameter, source, by_name) for i in range(len(piece.theirs))]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        state[piece.ours] = _fill_rows(whole, parameter.shape)
    missing = model.load_state_dict(state, strict=False, assign=True)
    assert not missing.unexpected_keys, missing
    tie_weights(model)


def dump_tensors(model: Model, family: Family | None, architecture: str) -> Iterator[tuple[str, Tensor]]:
    """(their name, tensor) of everything the family stores."""
    prefix = "" if family is None else prefix_of(family, architecture)
    for piece, parameter in plan(model, family, architecture, prefix):
        whole = parameter.detach()[: sum(piece.rows)]  # without the rows that round a vocabulary up
        for i, part in enumerate(whole.split(list(piece.rows))):
            if i == piece.absent:
                continue
            if piece.op == "transpose" and part.ndim == 2:
                yield piece.theirs[i], part.T
            else:
                yield piece.theirs[i], part.reshape(_stored_shape(piece, i, parameter.shape, model.config))


def tensor_names(model: Model, family: Family | None, architecture: str) -> list[str]:
    """Names of all the tensors that `dump_tensors` gives."""
    prefix = "" if family is None else prefix_of(family, architecture)
    return [name for piece, _ in plan(model, family, architecture, prefix) for name in piece.theirs]


def plan(model: Model, family: Family | None, architecture: str, prefix: str) -> list[tuple[Piece, Tensor]]:
    """A piece for every parameter of the model, tied ones once; quantised matrices are no parameters, but stored."""
    parameters: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    vocab = dict(model.vocabulary_rows())
    if family is None:
        return [(Piece(n, (n,), "", (vocab.get(p, len(p)),)), p) for n, p in parameters.items()]
    table: dict[str, tuple[list[str], str]] = {}
    for ours, theirs, op in tensors_of(family, model.config, architecture, prefix):
        table[ours] = (theirs.split("|"), op)
    result: list[tuple[Piece, Tensor]] = []
    for name, parameter in parameters.items():
        module, _, leaf = name.rpartition(".")
        suffix = "" if name in table else f".{leaf}"
        if name not in table and module not in table:
            raise DamagedError("X002", f"{family.name} has no place for {name}")
        names, op = table[name if name in table else module]
        stack = model.config.encoder if name.startswith("encoder") else model.config.decoder
        rows, absent = _rows(name, parameter, len(names), stack, vocab.get(parameter))
        result.append((Piece(name, tuple(t + suffix for t in names), op, rows, absent), parameter))
    return result


def _rows(
    name: str, parameter: Tensor, parts: int, stack: StackConfig | None, vocab: int | None
) -> tuple[tuple[int, ...], int | None]:
    if parts == 1:
        return (vocab if vocab is not None else len(parameter),), None
    if ".qkv." not in name and ".kv." not in name:
        return (len(parameter) // parts,) * parts, None
    assert stack is not None
    queries, keys = stack.n_heads * stack.head_width, stack.kv_heads * stack.head_width
    silent = not stack.key_bias and name.endswith("bias")
    if parts == 3:
        return (queries, keys, keys), 1 if silent else None
    return (keys, keys), 0 if silent else None


def _stored_shape(piece: Piece, i: int, shape: torch.Size, config: ModelConfig) -> tuple[int, ...]:
    """The shape their file gives to part i of a parameter of ours."""
    part = (piece.rows[i], *shape[1:])
    if piece.op == "transpose" and len(part) == 2:
        return part[::-1]
    if piece.op == "patches" and len(part) == 2:
        front = config.source
        assert front is not None and front.kind == "patches"
        return (part[0], front.channels, front.patch, front.patch)
    return {"lead1": (1,), "lead2": (1, 1)}.get(piece.op, ()) + part


def _check(
    piece: Piece,
    stored: list[tuple[int, ...]],
    kinds: tuple[str, ...],
    source: Source,
    by_name: Mapping[str, str],
) -> None:
    for i, name in enumerate(piece.theirs):
        if i == piece.absent:
            continue
        if name not in by_name:
            raise DamagedError("X002", f'tensor "{name}" is missing ({len(by_name)} tensors are there)')
        found, kind = source.shape(by_name[name]), source.dtype(by_name[name])
        if found != stored[i]:
            raise DamagedError("X003", f'tensor "{name}" has shape {short(found)}, config.json asks for {stored[i]}')
        if kind not in kinds:
            raise DamagedError("X001", f'tensor "{name}" is of {kind}; headway reads {", ".join(kinds)}')


def _check_copies(
    copies: Mapping[str, list[str]], pieces: list[tuple[Piece, Tensor]], source: Source, by_name: dict[str, str]
) -> None:
    """A tied tensor may be there under either name; under both, the two have to be one."""
    wanted = {name for piece, _ in pieces for name in piece.theirs}
    for copy, originals in copies.items():
        original = next((name for name in originals if name in wanted), None)
        if original is None or copy in wanted or copy not in by_name:
            continue
        if by_name.setdefault(original, by_name[copy]) == by_name[copy]:
            continue
        if not _same(source, by_name[copy], by_name[original]):
            raise DamagedError(
                "X009",
                f'tensors "{copy}" and "{original}" differ, and the model has one matrix for both',
                "set tie_word_embeddings to false in config.json if it has two, else keep the right one",
            )


def _check_sines(names: list[str], config: ModelConfig, source: Source, by_name: Mapping[str, str]) -> None:
    """A stored table of sinusoidal positions is not read, so it has to be the one that the model computes."""
    front, width = config.output_front, config.output_stack.d_model
    assert not names or front.kind == "tokens"
    for name in names:
        if name not in by_name:
            continue
        table = source.read(by_name[name]).float()
        layout = front.positions.layout  # type: ignore[union-attr]
        if table.shape[1:] != (width,) or not torch.allclose(
            table, sinusoidal(torch.arange(len(table)), width, layout), atol=1e-2
        ):  # half-precision files are off by a thousandth
            raise DamagedError(
                "X009", f'tensor "{name}" holds other positions than the sines that config.json asks for'
            )


def _same(source: Source, left: str, right: str) -> bool:
    if source.shape(left) != source.shape(right):
        return False
    a, b = source.read(left), source.read(right)
    common = torch.promote_types(a.dtype, b.dtype)
    return torch.equal(a.to(common), b.to(common))


def _read(piece: Piece, i: int, parameter: Tensor, source: Source, by_name: Mapping[str, str]) -> Tensor:
    shape = (piece.rows[i], *parameter.shape[1:])
    if i == piece.absent:
        return torch.zeros(shape)
    tensor = source.read(by_name[piece.theirs[i]])
    return tensor.T.contiguous() if piece.op == "transpose" and tensor.ndim == 2 else tensor.reshape(shape)


def _fill_rows(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Zeros for the rows that round a vocabulary up."""
    if tensor.shape == shape:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(shape[0] - len(tensor), *shape[1:])])


def _modern(name: str) -> str:
    """Files converted from TensorFlow call a norm's weight gamma and its bias beta."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def _find_prefix(family: Family, architecture: str, names: Mapping[str, str]) -> str:
    """Some files of a headed model were saved from the bare one, or the other way round."""
    prefix = prefix_of(family, architecture)
    if prefix and not any(n.startswith(prefix) for n in names):
        return ""
    if not prefix and family.prefix and any(n.startswith(family.prefix) for n in names):
        return family.prefix
    return prefix


def _refuse_strangers(
    family: Family | None,
    config: ModelConfig,
    prefix: str,
    pieces: list[tuple[Piece, Tensor]],
    by_name: Mapping[str, str],
) -> None:
    """A tensor that nothing in the family explains means that the file is not what config.json says."""
    wanted = {name for piece, _ in pieces for name in piece.theirs}
    heads: set[str] = set()
    for head in family.heads.values() if family else ():
        heads |= {t.replace("{prefix}", prefix) for e in head.tensors for t in e.theirs.split("|")}
        named = (*head.copies, *family.copies, *family.sines) if family else ()
        heads |= {name.replace("{prefix}", prefix) for name in named}
    for name in by_name:
        spare = family is not None and name.endswith(family.spare) if family and family.spare else False
        if name not in wanted and not spare and name.rpartition(".")[0] not in heads and name not in heads:
            raise DamagedError(
                "X004",
                f"tensor {short(by_name[name])} belongs to nothing in config.json",
                "the weights and config.json may be of two different models",
            )


def tie_weights(model: Model) -> None:
    """Assigning tensors parts what shared one matrix: join it again."""
    if model.config.shared_embedding:
        model.target.table = model.source.table  # type: ignore[assignment]
    if model.config.lm and model.config.lm.tied and model.config.quantization == "none":
        front = model.target if model.config.decoder else model.source
        model.lm.output.weight = front.table.weight  # type: ignore[union-attr,assignment]
