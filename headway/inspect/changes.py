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
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway.errors import DataError
from headway.inspect.parts import Part, chosen_part, no_such

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
    block = part.block(change.layer)
    if isinstance(change, Steer):
        like = next(block.parameters())
        vector = torch.as_tensor(change.vector, dtype=like.dtype, device=like.device)
        if vector.shape != (part.config.d_model,):
            shape = tuple(vector.shape)
            raise DataError("D001", f"a direction of shape {shape}, the layers are {part.config.d_model} wide")
        return [edit_output(block, _at(change.position, lambda x: x + change.strength * vector))]
    if isinstance(change, Patch):
        return [_patch(part, change)]
    factor = change.factor if isinstance(change, Scale) else None
    if change.head is not None:
        return [edit_input(part.attention(change.layer).out, _columns(head_columns(part, change.head), factor))]
    if change.neuron is not None:
        return [edit_input(_down(block, change.neuron), _columns(slice(change.neuron, change.neuron + 1), factor))]
    branches = {"attention": part.attention(change.layer).out, "ffn": block.ffn}
    chosen = [branches[change.part]] if change.part else list(branches.values())
    if not change.part and "cross" in dict(block.named_children()):  # the whole layer: its other attention, too
        chosen = [block.attention.out, block.cross.out, block.ffn]
    return [edit_output(module, lambda x: scaled(x, factor)) for module in chosen]


def _patch(part: Part, change: Patch) -> RemovableHandle:
    name, columns = part.name(change.layer), None
    module: nn.Module = part.block(change.layer)
    if change.head is not None:
        name, module, columns = head_name(part, change.layer), part.attention(change.layer).out, change.head
    elif change.part:
        name = part.name(change.layer, "attention.out" if change.part == "attention" else "ffn")
        module = part.attention(change.layer).out if change.part == "attention" else part.block(change.layer).ffn
    other = change.source[name]
    chosen = slice(None) if columns is None else head_columns(part, columns)

    def edit(x: Tensor) -> Tensor:
        if x.shape[1] != other.shape[1]:
            counts = f"{other.shape[1]} positions in the other pass, {x.shape[1]} in this one"
            raise DataError("D001", f"a patch needs equal lengths: {counts}", "give texts of equally many tokens")
        found = x.clone()
        where = slice(None) if change.position is None else checked_position(change.position, x.shape[1])
        found[:, where, chosen] = other[:, where, chosen].to(x)
        return found

    return (edit_output if columns is None else edit_input)(module, edit)


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


def edit_input(module: nn.Module, edit: Edit) -> RemovableHandle:
    """Edit the first argument of a module."""
    return module.register_forward_pre_hook(lambda module, inputs: (edit(inputs[0]), *inputs[1:]))


def edit_output(module: nn.Module, edit: Edit) -> RemovableHandle:
    """Edit what a module gives."""
    return module.register_forward_hook(lambda module, inputs, output: edit(output))


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


def _down(block: nn.Module, neuron: int) -> nn.Module:
    ffn: Any = block.get_submodule("ffn")
    if not hasattr(ffn, "down"):
        raise DataError("D001", "the feed-forward network of this model has no single neurons")
    if not 0 <= neuron < ffn.down.in_features:
        raise no_such("neuron", neuron, ffn.down.in_features)
    down: nn.Module = ffn.down
    return down
