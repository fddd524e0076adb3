"""What the routes of the studio share: the folder of runs, the token, loaded models, commands that run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import NotFoundError
from headway.jsonfile import show
from headway.runs.live import LiveRuns
from headway.studio.jobs import Jobs
from headway.studio.token import sign

if TYPE_CHECKING:
    from headway.api.bundle import Bundle

MODELS = 2
"""Models kept in memory at a time: two can be put side by side."""
NAME = 255
"""Bytes of a name that file systems allow."""


class Studio:
    """One studio: a folder of runs, and what is being done with it."""

    def __init__(self, runs: Path, token: str, state: Path) -> None:
        self.runs, self.token, self.state = runs, token, state
        self.jobs = Jobs(state)
        self.models = Models()
        self.histories = LiveRuns()

    def run_folder(self, name: str) -> Path:
        """The folder of a run by its name; a run of a comparison is COMPARISON/RUN. Nothing outside can be named."""
        first, _, second = name.partition("/")
        folder = self.runs / name
        if not is_plain(first) or ("/" in name and not is_plain(second)) or not (folder / "run").is_dir():
            hint = "it may have been deleted: reload the list of runs"
            raise NotFoundError("F001", f"there is no run {show(name)}", hint)
        return folder

    def comparison_folder(self, name: str) -> Path:
        """The folder of a comparison by its name."""
        if not is_plain(name) or not (self.runs / name).is_dir():
            raise NotFoundError("F001", f"there is no comparison {show(name)}", "it may have been deleted")
        return self.runs / name

    def link(self, path: str) -> str:
        """A link under /api that a browser can open by itself: a picture, a report, a download."""
        return sign(self.token, path)

    def close(self) -> None:
        self.jobs.close()


def is_plain(name: str) -> bool:
    """Whether a name is one of a file or folder, and leads nowhere else."""
    return 0 < len(name.encode(errors="replace")) <= NAME and name[0] != "." and not set(name) & set("/\\\0")


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
