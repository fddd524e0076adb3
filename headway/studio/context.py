"""What the routes of the studio share: the folder of runs, the token, loaded models, commands that run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import NotFoundError
from headway.jsonfile import show
from headway.studio.jobs import Jobs
from headway.studio.runs.live import LiveRuns
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
        self.models = Models(runs)
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

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[int, Bundle, threading.Lock]] = OrderedDict()

    def get(self, name: str) -> tuple[Bundle, threading.Lock]:
        """A model by run, folder, preset or hub id, and the lock under which to use it. Nothing is downloaded.

        A run that has trained on since is loaded again.
        """
        from headway.api.bundle import load
        from headway.config.presets import PRESETS
        from headway.hub.download import local_model, resolve

        random = name in PRESETS and local_model(name, self.runs) is None
        place = None if random else resolve(name, local=True, out=self.runs)
        stamp = 0 if place is None else max(_changed(place), _changed(place / "run" / "checkpoints"))
        with self._lock:
            if name in self._kept and self._kept[name][0] != stamp:
                del self._kept[name]
            if name not in self._kept:
                while len(self._kept) >= MODELS:
                    self._kept.popitem(last=False)
                self._kept[name] = stamp, load(name if place is None else place), threading.Lock()
            self._kept.move_to_end(name)
            return self._kept[name][1:]

    def forget(self, name: str) -> None:
        """Drop a model whose weights may have changed or gone."""
        with self._lock:
            self._kept.pop(name, None)


def _changed(path: Path) -> int:
    """When a folder or a file was last written; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
