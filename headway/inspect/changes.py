"""Changes of a running model: parts ablated, scaled, patched from another pass, or steered; gone with the context.

Letters: B batch, T tokens, M width of the model, H heads, D width of a head.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from headway.errors import DataError
from headway.inspect.parts import Part, chosen_part, no_such
from headway.model.feed_forward import FeedForward
from headway.model.stack import Block

Branch = Literal["", "attention", "ffn"]
PLACE = re.compile(
    r"(?:(?P<kind>[a-z]\w*)\.)?(?P<layer>\d{1,4})"
    r"(?:\.(?:(?P<head>\d{1,5})|(?P<part>attention|ffn(?:\.(?P<neuron>\d{1,7}))?)))?"
)
"""A part of a layer, as people write it."""
Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Ablate:
    """Take away what a part of a layer adds: a head, a neuron, attention or ffn; without any of these, all of it."""

    layer: int
    kind: str = ""
    """The kind of attention: encoder, decoder, cross …; empty: that of the output stack."""
    head: int | None = None
    neuron: int | None = None
    """A hidden unit of the feed-forward network."""
    part: Branch = ""


@dataclass(frozen=True, kw_only=True)
class Scale(Ablate):
    """Multiply what a part of a layer adds."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Replace what a layer gives by what it gave in another pass: the residual stream, one head, attention or ffn."""

    layer: int
    source: Mapping[str, Tensor] = field(repr=False)
    """The activations of the other pass, `Pass.activations`."""
    kind: str = ""
    position: int | None = None
    """None: all positions, which must then be as many in both passes."""
    head: int | None = None
    part: Branch = ""


@dataclass(frozen=True, kw_only=True)
class Steer:
    """Add a vector to the residual stream after a layer, at all positions or at one."""

    layer: int
    vector: Any
    """(M,), such as `Session.direction` gives."""
    strength: float = 1.0
    kind: str = ""
    position: int | None = None


Change = Ablate | Scale | Patch | Steer


def parse_change(words: str, factor: float | None = None) -> Change:
    """A change as people write it: `3` is layer 3, `3.5` its head 5, `3.attention`, `3.ffn`, `3.ffn.17` a neuron.

    `cross.3.5` names the kind of attention. Without a factor the part is ablated.
    """
    place = PLACE.fullmatch(words.strip())
    if place is None:
        raise DataError(
            "D001", f"{words!r} names no part of a model", "3, 3.5, 3.attention, 3.ffn, 3.ffn.17, cross.3.5"
        )
    found: dict[str, Any] = {"layer": int(place["layer"]), "kind": place["kind"] or ""}
    found |= {name: int(place[name]) for name in ("head", "neuron") if place[name]}
    found |= {"part": place["part"]} if place["part"] and not place["neuron"] else {}
    return Ablate(**found) if factor is None else Scale(factor=factor, **found)


@contextmanager
def changed(parts: Mapping[str, Part], changes: Sequence[Change]) -> Iterator[None]:
    """The model that these are the parts of, with the changes in their order."""
    with ExitStack() as stack:
        for change in changes:
            part = chosen_part(parts, change.kind)
            for handle in _hooks(part, change):
                stack.callback(handle.remove)
        yield


def _hooks(part: Part, change: Change) -> list[RemovableHandle]:
    if isinstance(change, Steer):
        like = next(part.block(change.layer).parameters())
        vector = torch.as_tensor(change.vector, dtype=like.dtype, device=like.device)
        if vector.shape != (part.config.d_model,):
            shape = tuple(vector.shape)
            raise DataError("D001", f"a direction of shape {shape}, the layers are {part.config.d_model} wide")
        return [part.site(change.layer).after(_at(change.position, lambda x: x + change.strength * vector))]
    if isinstance(change, Patch):
        return [_patch(part, change)]
    factor = change.factor if isinstance(change, Scale) else None
    if change.head is not None:
        edit = _columns(head_columns(part, change.head), factor)
        return [part.site(change.layer, "attention.out").before(edit)]
    if change.neuron is not None:
        _check_neuron(part.block(change.layer), change.neuron)
        edit = _columns(slice(change.neuron, change.neuron + 1), factor)
        return [part.site(change.layer, "ffn.down").before(edit)]
    branches = {"attention": "attention.out", "ffn": "ffn"}
    chosen = [branches[change.part]] if change.part else list(branches.values())
    if not change.part and not part.cross and part.config.cross:  # the whole layer: its other attention, too
        chosen.append("cross.out")
    return [part.site(change.layer, inner).after(lambda x: scaled(x, factor)) for inner in chosen]


def _patch(part: Part, change: Patch) -> RemovableHandle:
    inner = {"": "", "attention": "attention.out", "ffn": "ffn"}[change.part]
    name, site, chosen = part.name(change.layer, inner), part.site(change.layer, inner), slice(None)
    if change.head is not None:
        name, site = head_name(part, change.layer), part.site(change.layer, "attention.out")
        chosen = head_columns(part, change.head)
    other = change.source[name]

    def edit(x: Tensor) -> Tensor:
        if x.shape[1] != other.shape[1]:
            counts = f"{other.shape[1]} positions in the other pass, {x.shape[1]} in this one"
            raise DataError("D001", f"a patch needs equal lengths: {counts}", "give texts of equally many tokens")
        found = x.clone()
        where = slice(None) if change.position is None else checked_position(change.position, x.shape[1])
        found[:, where, chosen] = other[:, where, chosen].to(x)
        return found

    return site.after(edit) if change.head is None else site.before(edit)


def head_name(part: Part, layer: int) -> str:
    """The name of the outputs of all heads of a layer, side by side."""
    return part.name(layer, "attention.out") + ".input"


def head_columns(part: Part, head: int) -> slice:
    """Where the output of a head stands among those of all heads."""
    config = part.config
    if not 0 <= head < config.n_heads:
        raise no_such("head", head, config.n_heads)
    return slice(head * config.head_width, (head + 1) * config.head_width)


def checked_position(position: int, count: int) -> int:
    if not 0 <= position < count:
        raise no_such("position", position, count)
    return position


def scaled(x: Tensor, factor: float | None) -> Tensor:
    """x times the factor; zeros for None, whatever x holds."""
    return torch.zeros_like(x) if factor is None else x * factor


def _columns(columns: slice, factor: float | None) -> Edit:
    def edit(x: Tensor) -> Tensor:
        found = x.clone()
        found[..., columns] = scaled(x[..., columns], factor)
        return found

    return edit


def _at(position: int | None, edit: Edit) -> Edit:
    def edit_one(x: Tensor) -> Tensor:
        if position is None:
            return edit(x)
        found = x.clone()
        found[:, checked_position(position, x.shape[1])] = edit(x)[:, position]
        return found

    return edit_one


def _check_neuron(block: Block, neuron: int) -> None:
    if not isinstance(block.ffn, FeedForward):
        raise DataError(
            "D001", "the feed-forward network of this model is a mixture of experts, without single neurons"
        )
    if not 0 <= neuron < block.ffn.down.in_features:
        raise no_such("neuron", neuron, block.ffn.down.in_features)
