"""headway: a transformer workbench. `headway.train("tiny")`; `headway.load("last")`, then use it, check it, save it.

Importing headway imports nothing heavy: each name is fetched when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.version import __version__ as __version__

if TYPE_CHECKING:
    from headway.api import Bundle as Bundle
    from headway.api import load as load
    from headway.config.model import ModelConfig as ModelConfig
    from headway.config.presets import preset as preset
    from headway.errors import HeadwayError as HeadwayError

    train: Callable[..., Path]

_HOME = {
    "Bundle": "headway.api",
    "HeadwayError": "headway.errors",
    "ModelConfig": "headway.config.model",
    "load": "headway.api",
    "preset": "headway.config.presets",
    "train": "headway.train",
}

__all__ = ["Bundle", "HeadwayError", "ModelConfig", "load", "preset", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    from importlib import import_module

    if name == "train":  # a package that can be called
        return import_module("headway.train")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
