"""What the routes of the studio share: the folder of runs, the token, loaded models, commands that run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import NotFoundError
from headway.jsonfile import show
from headway.studio.jobs import Jobs
from headway.studio.token import sign

if TYPE_CHECKING:
    from headway.api.bundle import Bundle

MODELS = 2
"""Models kept in memory at a time: two can be put side by side."""


class Studio:
    """One studio: a folder of runs, and what is being done with it."""

    def __init__(self, runs: Path, token: str, state: Path) -> None:
        self.runs, self.token, self.state = runs, token, state
        self.jobs = Jobs(state)
        self.models = Models()

    def run_folder(self, name: str) -> Path:
        """The folder of a run by its full name; nothing outside the folder of runs can be named."""
        folder = self.runs / name
        if (
            not name
            or name.startswith(".")
            or "/" in name
            or "\\" in name
            or "\0" in name
            or not (folder / "run").is_dir()
        ):
            raise NotFoundError(
                "F001", f"there is no run {show(name)}", "it may have been deleted: reload the list of runs"
            )
        return folder

    def link(self, path: str) -> str:
        """A link under /api that a browser can open by itself: a picture, a report, a download."""
        return sign(self.token, path)

    def close(self) -> None:
        self.jobs.close()


class Models:
    """The models that pages use, loaded once. One thread at a time uses a model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Bundle, threading.Lock]] = OrderedDict()

    def get(self, name: str) -> tuple[Bundle, threading.Lock]:
        """A model by run, folder or hub id, and the lock under which to use it."""
        from headway.api.bundle import load

        with self._lock:
            if name not in self._kept:
                while len(self._kept) >= MODELS:
                    self._kept.popitem(last=False)
                self._kept[name] = load(name), threading.Lock()
            self._kept.move_to_end(name)
            return self._kept[name]

    def forget(self, name: str) -> None:
        """Drop a model whose weights may have changed or gone."""
        with self._lock:
            self._kept.pop(name, None)
