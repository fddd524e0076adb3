"""headway: a transformer workbench. Train models, use them, look at them, compare them, save them.

    import headway

    run = headway.train("classify", data="reviews.csv", steps=200)   # shows progress, returns a Run
    run.metrics, run.history.to_frame(), run.report()
    run.model.classify("a dull film")                                # or headway.load("last"), headway.load("org/name")

    headway.data("reviews.csv")                                      # look at a dataset before training
    headway.evaluate("last", "test.csv")                             # metrics with intervals
    headway.compare("tiny", {"model.norm": ["layernorm", "dyt"]}, seeds=3)
    headway.runs()                                                   # all runs, newest first

Importing headway imports nothing heavy: each name is fetched when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headway.version import __version__ as __version__

if TYPE_CHECKING:
    from headway.api.bundle import Bundle as Bundle
    from headway.api.past_runs import Run as Run
    from headway.api.verbs import compare as compare
    from headway.api.verbs import data as data
    from headway.api.verbs import evaluate as evaluate
    from headway.api.verbs import load as load
    from headway.api.verbs import run as run
    from headway.api.verbs import runs as runs
    from headway.api.verbs import train as train
    from headway.config.model import ModelConfig as ModelConfig
    from headway.config.presets import preset as preset
    from headway.errors import HeadwayError as HeadwayError

_HOME = {
    "Bundle": "headway.api.bundle:Bundle",
    "HeadwayError": "headway.errors:HeadwayError",
    "ModelConfig": "headway.config.model:ModelConfig",
    "Run": "headway.api.past_runs:Run",
    "compare": "headway.api.verbs:compare",
    "data": "headway.api.verbs:data",
    "evaluate": "headway.api.verbs:evaluate",
    "load": "headway.api.verbs:load",
    "preset": "headway.config.presets:preset",
    "run": "headway.api.verbs:run",
    "runs": "headway.api.verbs:runs",
    "train": "headway.api.verbs:train",
}
_CALLABLE = ("data", "runs", "train")
"""Packages of headway that are verbs too: `headway.train("tiny")` and `import headway.train.loop` both work."""

__all__ = [
    *("Bundle", "HeadwayError", "ModelConfig", "Run", "compare", "data", "evaluate", "load", "preset", "run", "runs"),
    "train",
]


class _Verb(ModuleType):
    """A package that is called as the verb of its name, and is documented as that verb."""

    def __call__(self, *args: Any, **more: Any) -> Any:
        return _public(self.__name__.rpartition(".")[2])(*args, **more)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return str(_public(self.__name__.rpartition(".")[2]).__doc__)

    @property
    def __signature__(self) -> Signature:
        return signature(_public(self.__name__.rpartition(".")[2]))


class _Headway(ModuleType):
    """The package itself: the import system sets a package inside as an attribute, and some of them are verbs."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _CALLABLE and isinstance(value, ModuleType):
            value.__class__ = _Verb
        super().__setattr__(name, value)


def _public(name: str) -> Any:
    module, _, inside = _HOME[name].partition(":")
    return getattr(import_module(module), inside)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    return import_module(f"headway.{name}") if name in _CALLABLE else _public(name)


def __dir__() -> list[str]:
    """The public names without `Bundle`: completion in a notebook fetches every name listed, and it imports torch."""
    return sorted({*__all__} - {"Bundle"})


sys.modules[__name__].__class__ = _Headway
