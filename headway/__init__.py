"""headway: a transformer workbench. `headway.load("org/name")`, then use it, check it, save it.

Importing headway imports nothing heavy: each name is fetched when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.api import Bundle as Bundle
    from headway.api import load as load
    from headway.config import ModelConfig as ModelConfig
    from headway.errors import HeadwayError as HeadwayError
    from headway.presets import preset as preset

__version__ = "0.1.0"

_HOME = {
    "Bundle": "headway.api",
    "HeadwayError": "headway.errors",
    "ModelConfig": "headway.config",
    "load": "headway.api",
    "preset": "headway.presets",
}

__all__ = ["Bundle", "HeadwayError", "ModelConfig", "load", "preset"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
