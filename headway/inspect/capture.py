"""Capture of activations by name: what the modules of a model give, while a context lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway.errors import DataError, nearest
from headway.model.attention import Hook
from headway.model.model import Model

INPUT = ".input"
"""The end of the name of a module's first argument."""
OWN = (".weights", ".scores", ".queries", ".keys", ".values", ".residual")
"""Ends of the names that a model gives to its hook: of attention, and of the residual stream after a layer."""


@contextmanager
def capture(model: Model, names: str | Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Activations by name, in a dict that each forward pass of the model fills anew.

        with capture(model, ["decoder.blocks.*.ffn", "decoder.blocks.0.attention.weights"]) as seen:
            model(ids)

    A name is that of a module, for what it gives; a module's name and `.input`, for what it is given; or one of the
    model's own, such as `decoder.blocks.0.attention.weights` and `decoder.blocks.0.residual`. `*` is any text.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    seen: dict[str, Tensor] = {}
    modules = {name: module for name, module in model.named_modules() if name}
    with ExitStack() as stack:
        for pattern in wanted:
            if pattern.endswith(OWN):
                continue
            found = [name for name in modules if fnmatchcase(name, pattern.removesuffix(INPUT))]
            if not found:
                raise DataError("D001", f"the model has no module {pattern!r}{nearest(pattern, modules)}")
            for name in found:
                stack.callback(_keep(modules[name], name, pattern.endswith(INPUT), seen).remove)
        if own := [pattern for pattern in wanted if pattern.endswith(OWN)]:
            stack.callback(_keep_own(model, own, seen).remove)
        yield seen


def _keep(module: nn.Module, name: str, before: bool, seen: dict[str, Tensor]) -> RemovableHandle:
    def keep_input(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen[name + INPUT] = tensor_of(inputs[0])

    def keep_output(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        seen[name] = tensor_of(output)

    return module.register_forward_pre_hook(keep_input) if before else module.register_forward_hook(keep_output)


def tensor_of(value: Any) -> Tensor:
    """The vectors that a front end or a whole model gives, which stand in an object with more; others as they are."""
    found: Tensor = getattr(value, "hidden", getattr(value, "x", value))
    return found


def _keep_own(model: Model, patterns: Sequence[str], seen: dict[str, Tensor]) -> RemovableHandle:
    """Call the model with a hook that keeps what is wanted, beside the hook that the caller may give it."""

    def give_hook(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        other: Hook | None = kwargs.get("hook")

        def hook(name: str, make: Callable[..., Tensor]) -> None:
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                seen[name] = make()
            if other is not None:
                other(name, make)

        return args, {**kwargs, "hook": hook}

    return model.register_forward_pre_hook(give_hook, with_kwargs=True)
