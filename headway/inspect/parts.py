"""The parts of a model by name: its stacks, their kinds of attention, and the modules of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.baselines.memory import MemoryNetwork
from headway.config.model import StackConfig
from headway.errors import DataError, nearest
from headway.inspect.sites import Site
from headway.model.attention import Attention
from headway.model.model import Model
from headway.model.stack import Block, Stack

CROSS = "cross"
"""The kind of the attention of a decoder to the encoder's output."""

HOPS = "hops"
"""The kind of the attention of a memory network: from a question to sentences."""


@dataclass(frozen=True)
class Part:
    """One kind of attention of a model, layer by layer: of a stack to itself, or to another stack."""

    kind: str
    """encoder, decoder, cross; or the name of a tower: image, text, sound, joint."""
    path: str
    """Of the stack, as a module of the model: `decoder`, `image.encoder`."""
    config: StackConfig
    stack: Stack | None
    """None for the hops of a memory network, which have weights and no layers."""
    cross: bool = False
    """Whether the keys are others than the queries."""

    @property
    def whole(self) -> Stack:
        """The stack, where there is one."""
        if self.stack is None:
            raise DataError("D001", f"{self.kind} are no layers: they have attention weights, and nothing else")
        return self.stack

    @property
    def layers(self) -> int:
        return self.config.n_layers

    @property
    def stack_kind(self) -> str:
        """The kind of the stack itself: of cross-attention, that of the decoder."""
        return self.path.rpartition(".")[0] or self.path

    def block(self, layer: int) -> Block:
        """A layer, counted from 0."""
        self.check_layer(layer)
        block = self.whole.blocks[layer]
        assert isinstance(block, Block)
        return block

    def check_layer(self, layer: int) -> None:
        """Refuse a layer that does not exist."""
        if not 0 <= layer < self.layers:
            raise no_such("layer", layer, self.layers)

    def site(self, layer: int, inner: str = "") -> Site:
        """A layer, or a module in it by its name there; `attention` is the one of this kind."""
        block, own = self.block(layer), self._own(inner)
        module = block.get_submodule(own) if own else block
        return Site(module, layer, self.layers) if self.config.shared else Site(module)

    def attention(self, layer: int) -> Attention:
        block = self.block(layer)
        found: Attention = block.cross if self.cross else block.attention
        return found

    def name(self, layer: int, module: str = "") -> str:
        """The name of a layer's module: `decoder.blocks.3.ffn`; `attention` is the one of this kind."""
        if self.stack is None:
            return f"{self.path}.{layer}"
        own = self._own(module)
        return f"{self.path}.blocks.{layer}{f'.{own}' if own else ''}"

    def _own(self, module: str) -> str:
        """The name of a module in a block, where `attention` is the one of this kind."""
        return CROSS + module.removeprefix("attention") if self.cross and module.startswith("attention") else module


def parts_of(model: Model) -> dict[str, Part]:
    """The kinds of attention of a model, in the order of its modules."""
    found: dict[str, Part] = {}
    for path, module in model.named_modules():
        if not isinstance(module, Stack):
            continue
        parents = path.rpartition(".")[0]
        kind = parents or path
        found[kind] = Part(kind, path, module.config, module)
        if module.config.cross:
            found[CROSS] = Part(CROSS, path, module.config, module, cross=True)
    if isinstance(model, MemoryNetwork):
        config = StackConfig(d_model=model.config.width, n_layers=model.config.n_hops, n_heads=1, d_ff=1)
        found[HOPS] = Part(HOPS, HOPS, config, None, cross=True)
    return found


def chosen_part(parts: Mapping[str, Part], kind: str = "") -> Part:
    """The part of that kind; without a kind that of the output, which comes last among those that are not cross."""
    if not parts:
        raise DataError("D001", "the model has no attention: it is no transformer")
    if not kind:
        return [part for part in parts.values() if not part.cross or part.stack is None][-1]
    if kind not in parts:
        listed = ", ".join(parts)
        raise DataError("D001", f"no attention {kind!r}{nearest(kind, list(parts))}", f"the model has: {listed}")
    return parts[kind]


def no_such(what: str, number: int, count: int) -> DataError:
    """The error for a layer, head, neuron or position that does not exist."""
    return DataError("D001", f"no {what} {number}: the model has {count}, counted from 0")
