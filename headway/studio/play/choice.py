"""The models to choose from: runs, models in packages, models of the hub on this disk, presets. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.config.presets import PRESETS
from headway.config.toml import read_toml
from headway.errors import HeadwayError
from headway.hub.checkpoint import run_steps
from headway.hub.download import PACKAGES, packaged
from headway.hub.run_names import has_model, is_running, run_folders
from headway.tasks.registry import known_task

Json = dict[str, Any]
MOST = 1000
"""Runs that are listed, the newest first."""


def models(runs: Path) -> list[Json]:
    """Each with its name, the group it stands in, and what it is."""
    return [*_runs(runs), *_packages(), *_hub(), *_presets()]


def _runs(runs: Path) -> Iterator[Json]:
    for folder in run_folders(runs)[: -MOST - 1 : -1]:
        finished = has_model(folder)
        if finished or run_steps(folder):
            state = "" if finished else "still training" if is_running(folder) else "not finished"
            yield {"group": "Runs", "name": folder.name, "about": ", ".join(filter(None, [_task_of(folder), state]))}


def _task_of(folder: Path) -> str:
    with suppress(HeadwayError):
        name = read_toml(folder / "run" / "recipe.toml")[0].get("task", "")
        task = known_task(name) if isinstance(name, str) else None
        return task.title if task is not None else str(name)[:40]
    return ""


def _packages() -> Iterator[Json]:
    for name, package in PACKAGES.items():
        with suppress(HeadwayError):
            packaged(name)
            yield {"group": "Packages", "name": name, "about": f"in the package {package}"}


def _hub() -> Iterator[Json]:
    """Models in the hub's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    for folder in sorted(Path(HF_HUB_CACHE).glob("models--*--*")):
        if any(folder.glob("snapshots/*/config.json")):
            name = folder.name.removeprefix("models--").replace("--", "/")
            yield {"group": "Hub, on this disk", "name": name, "about": ""}


def _presets() -> Iterator[Json]:
    for name in PRESETS:
        yield {"group": "Presets", "name": name, "about": "random weights"}
