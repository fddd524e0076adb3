"""The Python interface: what the command line does, as functions and objects. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.api.bundle import Bundle as Bundle
    from headway.api.bundle import load as load


def __getattr__(name: str) -> Any:
    if name not in ("Bundle", "load"):
        raise AttributeError(f"module 'headway.api' has no attribute {name!r}")
    from headway.api import bundle

    return getattr(bundle, name)
