"""Capture of activations by name: what the modules of a model give, while a context lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headway.errors import DataError, nearest
from headway.inspect.sites import Site, sites_of
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
    sites = sites_of(model)
    with ExitStack() as stack:
        for pattern in wanted:
            if pattern.endswith(OWN):
                continue
            found = [name for name in sites if fnmatchcase(name, pattern.removesuffix(INPUT))]
            if not found:
                raise DataError("D001", f"the model has no module {pattern!r}{nearest(pattern, sites)}")
            for name in found:
                stack.callback(_keep(sites[name], name, pattern.endswith(INPUT), seen).remove)
        if own := [pattern for pattern in wanted if pattern.endswith(OWN)]:
            stack.callback(_keep_own(model, own, seen).remove)
        yield seen


def _keep(site: Site, name: str, before: bool, seen: dict[str, Tensor]) -> RemovableHandle:
    key = name + INPUT if before else name

    def keep(value: Any) -> None:
        seen[key] = tensor_of(value)

    return site.before(keep) if before else site.after(keep)


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
