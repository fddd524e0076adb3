"""Tensors converted from a family's names and shapes to ours, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor

from headway.config.model import StackConfig, TokensConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.toml import short
from headway.errors import DamagedError
from headway.hub.family import Family, prefix_of, tensors_of, tied_copies_of
from headway.model.model import Model
from headway.model.positions import sinusoidal
from headway.progress import track

FLOATS = ("float32", "bfloat16", "float16", "float64")
"""Dtypes of weights; files with others are quantized, and need their own scales."""


class Source(Protocol):
    """Tensors of a file by name: opened, not yet read."""

    @property
    def names(self) -> list[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> str: ...
    def read(self, name: str) -> Tensor: ...
    def fill(self, name: str, out: Tensor) -> None: ...


@dataclass(frozen=True)
class StackedTensor:
    """One of our parameters, and the tensors of the file that it is stacked from."""

    ours: str
    theirs: tuple[str, ...]
    op: str
    rows: tuple[int, ...]
    """How many rows of our parameter each tensor of the file fills."""
    absent: int | None = None
    """Index of the tensor that the family does not store: a bias that is always zero."""
    orders: tuple[tuple[int, ...], ...] = ()
    """For each tensor of the file, the rows that ours begins with: of a head, say, and alike of those that follow."""


def load_tensors(model: Model, family: Family | None, architecture: str, source: Source) -> None:
    """Fill the model strictly: every parameter is found and has the right shape, and no tensor is left over."""
    by_name = {_modern_name(name): name for name in source.names}
    prefix = "" if family is None else _actual_prefix(family, architecture, by_name)
    pieces = plan_tensors(model, family, architecture, prefix)
    if family is not None:
        _check_copies(tied_copies_of(family, architecture, prefix), pieces, source, by_name)
        tables = [name.replace("{prefix}", prefix) for name in family.sinusoidal_tables]
        _check_sinusoidal_tables(tables, model.config, source, by_name)
    state: dict[str, Tensor] = {}
    for piece, parameter in pieces:
        stored = [_stored_shape(piece, i, parameter.shape, model.config) for i in range(len(piece.theirs))]
        dtypes = FLOATS if parameter.is_floating_point() else (str(parameter.dtype).removeprefix("torch."),)
        _check(piece, stored, dtypes, source, by_name)
    _refuse_unknown_tensors(family, prefix, pieces, by_name)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        found = pool.map(lambda each: _read(each[0], each[1], source, by_name), pieces)
        for (piece, _), whole in zip(track(pieces, "loading weights", unit="tensors"), found, strict=True):
            state[piece.ours] = whole
    missing = model.load_state_dict(state, strict=False, assign=True)
    assert not missing.unexpected_keys, missing
    tie_weights(model)


def dump_tensors(model: Model, family: Family | None, architecture: str) -> Iterator[tuple[str, Tensor]]:
    """(their name, tensor) of all tensors that the family stores."""
    prefix = "" if family is None else prefix_of(family, architecture)
    for piece, parameter in plan_tensors(model, family, architecture, prefix):
        whole = parameter.detach()[: sum(piece.rows)]  # without the rows that round a vocabulary up
        for i, part in enumerate(whole.split(list(piece.rows))):
            if i == piece.absent:
                continue
            if piece.orders and piece.orders[i]:
                part = _ordered(part, tuple(sorted(range(len(piece.orders[i])), key=piece.orders[i].__getitem__)))
            if piece.op == "transpose" and part.ndim == 2:
                yield piece.theirs[i], part.T
            else:
                yield piece.theirs[i], part.reshape(_stored_shape(piece, i, parameter.shape, model.config))


def tensor_names(model: Model, family: Family | None, architecture: str) -> list[str]:
    """Names of all tensors that `dump_tensors` yields."""
    prefix = "" if family is None else prefix_of(family, architecture)
    return [name for piece, _ in plan_tensors(model, family, architecture, prefix) for name in piece.theirs]


def plan_tensors(
    model: Model, family: Family | None, architecture: str, prefix: str
) -> list[tuple[StackedTensor, Tensor]]:
    """For every parameter and buffer of the model (tied ones once), the tensors of the file that make it up."""
    parameters: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    vocab = dict(model.vocabulary_rows())
    if family is None:
        return [(StackedTensor(n, (n,), "", (vocab.get(p, len(p)),)), p) for n, p in parameters.items()]
    result: list[tuple[StackedTensor, Tensor]] = []
    for side, inner in family.towers.items():
        pieces = plan_tensors(getattr(model, side), inner, next(iter(inner.heads)), inner.prefix)
        result += [(replace(piece, ours=f"{side}.{piece.ours}"), parameter) for piece, parameter in pieces]
        parameters = {name: p for name, p in parameters.items() if not name.startswith(f"{side}.")}
    table: dict[str, tuple[list[str], str]] = {}
    for ours, theirs, op in tensors_of(family, model.config, architecture, prefix):
        table[ours] = (theirs.split("|"), op)
    for name, parameter in parameters.items():
        module, _, leaf = name.rpartition(".")
        suffix = "" if name in table else f".{leaf}"
        if name not in table and module not in table:
            raise DamagedError("X002", f"{family.name} has no place for {name}")
        names, op = table[name if name in table else module]
        stack = model.config.encoder if name.startswith("encoder") else model.config.decoder
        rows, absent = _split_rows(name, parameter, len(names), stack, vocab.get(parameter))
        orders = _row_orders(op, rows, stack)
        result.append((StackedTensor(name, tuple(t + suffix for t in names), op, rows, absent, orders), parameter))
    return result


def _row_orders(op: str, rows: tuple[int, ...], stack: StackConfig | None) -> tuple[tuple[int, ...], ...]:
    """The orders of a `StackedTensor`. Our rotary pairs are a row of each half of a head, before all other rows."""
    if op == "swapped":
        return tuple((*range(count // 2, count), *range(count // 2)) for count in rows)
    if op not in ("pairs", "front", "grouped"):
        return ()
    assert stack is not None
    width = stack.head_width
    rotated = width if stack.rope is None else -(-stack.rope.rotated(width) // 2) * 2
    middle = (width + rotated) // 2
    parts = (range(0, rotated, 2), range(1, rotated, 2))
    if op != "pairs":
        parts = (range(rotated // 2), range(rotated // 2, rotated))
    order = (*parts[0], *range(rotated, middle), *parts[1], *range(middle, width))
    if op == "grouped":
        return (_grouped_order(stack, order),)
    if len(rows) == 1:
        places = [head * width + row for head in range(stack.n_heads + stack.kv_heads) for row in order]
        return ((*places, *range(len(places), rows[0])),)
    return order, order, ()  # values are not rotated


def _grouped_order(stack: StackConfig, order: tuple[int, ...]) -> tuple[int, ...]:
    """Where the file has the rows of our queries, keys and values: those of one group of heads after another."""
    width, groups = stack.head_width, range(stack.kv_heads)
    each = stack.n_heads // stack.kv_heads
    queries = [group * (each + 2) + head for group in groups for head in range(each)]
    keys, values = ([group * (each + 2) + each + part for group in groups] for part in (0, 1))
    turned = [head * width + row for head in (*queries, *keys) for row in order]
    return (*turned, *(head * width + row for head in values for row in range(width)))


def _ordered(part: Tensor, order: tuple[int, ...]) -> Tensor:
    """The rows of each stretch of a tensor in another order."""
    stretches = torch.unflatten(part, 0, (-1, len(order)))
    return stretches[:, list(order)].flatten(0, 1)


def _split_rows(
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


def _stored_shape(piece: StackedTensor, i: int, shape: torch.Size, config: AnyConfig) -> tuple[int, ...]:
    """The shape in the file of part i of our parameter."""
    part = (piece.rows[i], *shape[1:])
    if piece.op == "transpose" and len(part) == 2:
        return part[::-1]
    if piece.op == "patches" and len(part) == 2:
        front = config.source
        assert front is not None and front.kind == "patches"
        return (part[0], front.channels, front.patch, front.patch)
    if piece.op == "scalar":
        return ()
    return {"lead1": (1,), "lead2": (1, 1)}.get(piece.op, ()) + part


def _check(
    piece: StackedTensor,
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
    tied_copies: Mapping[str, list[str]],
    pieces: list[tuple[StackedTensor, Tensor]],
    source: Source,
    by_name: dict[str, str],
) -> None:
    """A tied tensor may be in the file under either name; under both, the two have to be equal."""
    wanted = {name for piece, _ in pieces for name in piece.theirs}
    for copy, originals in tied_copies.items():
        original = next((name for name in originals if name in wanted), None)
        if original is None or copy in wanted or copy not in by_name:
            continue
        if by_name.setdefault(original, by_name[copy]) == by_name[copy]:
            continue
        if not _are_equal(source, by_name[copy], by_name[original]):
            raise DamagedError(
                "X009",
                f'tensors "{copy}" and "{original}" differ, but the model has one matrix for both',
                "set tie_word_embeddings to false in config.json if the model has two, else delete the wrong one",
            )


def _check_sinusoidal_tables(names: list[str], config: AnyConfig, source: Source, by_name: Mapping[str, str]) -> None:
    """A stored table of sinusoidal positions has to equal the one that the model computes."""
    front, width = config.output_front, config.output_stack.d_model
    assert not names or isinstance(front, TokensConfig)
    for name in names:
        if name not in by_name:
            continue
        table = source.read(by_name[name]).float()
        right = sinusoidal(torch.arange(table.numel() // width), width, front.positions.layout)  # type: ignore[union-attr]
        if table.shape != right.shape or not torch.allclose(table, right, atol=1e-2):  # float16 is off by a thousandth
            what = f'tensor "{name}" differs from the sinusoidal positions that config.json asks for'
            raise DamagedError("X009", what)


def _are_equal(source: Source, left: str, right: str) -> bool:
    if source.shape(left) != source.shape(right):
        return False
    a, b = source.read(left), source.read(right)
    common = torch.promote_types(a.dtype, b.dtype)
    return torch.equal(a.to(common), b.to(common))


def _read(piece: StackedTensor, parameter: Tensor, source: Source, by_name: Mapping[str, str]) -> Tensor:
    """A parameter from its tensors. Only what is stacked, transposed or padded is copied: the rest may stay mapped."""
    names = {i: by_name[name] for i, name in enumerate(piece.theirs) if i != piece.absent}
    turned = piece.op == "transpose" and parameter.ndim == 2
    if piece.rows == (len(parameter),) and not turned and not piece.orders:
        return source.read(names[0]).reshape(parameter.shape)
    dtypes = [getattr(torch, source.dtype(name)) for name in names.values()]
    whole = torch.empty(parameter.shape, dtype=reduce(torch.promote_types, dtypes))
    *parts, padding = whole.split([*piece.rows, len(whole) - sum(piece.rows)])
    padding.zero_()
    for i, part in enumerate(parts):
        if i == piece.absent:
            part.zero_()
        elif turned:
            part.copy_(source.read(names[i]).T)
        else:
            source.fill(names[i], part)
        if piece.orders and piece.orders[i]:
            part.copy_(_ordered(part, piece.orders[i]))
    return whole


def _modern_name(name: str) -> str:
    """Files converted from TensorFlow call the weight of a norm gamma and its bias beta."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def _actual_prefix(family: Family, architecture: str, names: Mapping[str, str]) -> str:
    """The prefix in this file: some files of a model with a head were saved from the base model, or vice versa."""
    prefix = prefix_of(family, architecture)
    if prefix and not any(n.startswith(prefix) for n in names):
        return ""
    if not prefix and family.prefix and any(n.startswith(family.prefix) for n in names):
        return family.prefix
    return prefix


def _refuse_unknown_tensors(
    family: Family | None, prefix: str, pieces: list[tuple[StackedTensor, Tensor]], by_name: Mapping[str, str]
) -> None:
    """Refuse a tensor that the family does not know: the file is then not what config.json says."""
    wanted, known = {name for piece, _ in pieces for name in piece.theirs}, set[str]()
    if family is not None:
        heads = family.heads.values()
        named = {*family.tied_copies, *family.sinusoidal_tables, *(name for head in heads for name in head.tied_copies)}
        named |= {name for head in heads for entry in head.tensors for name in entry.theirs.split("|")}
        known = {name.replace("{prefix}", prefix) for name in named}
    for name in [name for name in by_name if name not in wanted]:
        if not known & {name, name.rpartition(".")[0]} and not name.endswith(family.unneeded if family else ()):
            raise DamagedError(
                "X004",
                f"tensor {short(by_name[name])} belongs to no part of the model in config.json",
                "the weights and config.json may be of two different models",
            )


def tie_weights(model: Model) -> None:
    """Tie matrices again after tensors were assigned, which separates them."""
    if model.config.shared_embedding:
        model.target.table = model.source.table  # type: ignore[assignment]
    if model.config.lm and model.config.lm.tied and model.config.quantization == "none":
        front = model.target if model.config.decoder else model.source
        model.lm.output.weight = front.table.weight  # type: ignore[union-attr,assignment]
