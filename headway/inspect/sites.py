"""Places in a model where something can be watched or edited: a module, at one of its turns.

Blocks that share their weights are one module, which a forward pass calls once for each layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from headway.model.model import Model

LAYERS = ".blocks."
"""What the names of modules have in common that may be called more than once in a pass."""


@dataclass(frozen=True)
class Site:
    """A module; of one that is called several times in a forward pass, one of the calls."""

    module: nn.Module
    turn: int = 0
    turns: int = 1

    def before(self, edit: Callable[[Any], Any]) -> RemovableHandle:
        """Call with the first argument of the module; what it returns, if it is not None, takes its place."""
        called = 0

        def run(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
            nonlocal called
            called += 1
            if (called - 1) % self.turns != self.turn:
                return None
            found = edit(inputs[0])
            return None if found is None else (found, *inputs[1:])

        return self.module.register_forward_pre_hook(run)

    def after(self, edit: Callable[[Any], Any]) -> RemovableHandle:
        """The same with what the module gives."""
        called = 0

        def run(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
            nonlocal called
            called += 1
            return edit(output) if (called - 1) % self.turns == self.turn else None

        return self.module.register_forward_hook(run)


def sites_of(model: Model) -> dict[str, Site]:
    """Every module by its names; a shared block has one for each layer."""
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    turns: dict[nn.Module, list[str]] = {}
    for name, module in modules.items():
        if LAYERS in name:
            turns.setdefault(module, []).append(name)
    found: dict[str, Site] = {}
    for name, module in modules.items():
        names = turns.get(module, [name])
        found[name] = Site(module, names.index(name), len(names)) if name in names else Site(module)
    return found
