"""Runs that are read again and again: of a log only what has been added since. No torch here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from headway.hub.run_names import is_running
from headway.runs.events import EventLog, last_line_end
from headway.runs.history import LOG, History, read_run

KEPT = 16
"""Runs whose logs stay in memory: a page compares eight."""
Stamp = tuple[tuple[int, int, int], tuple[int, int, int]]
"""Of the log and of the recipe: which file it is, when it was changed, its size."""


def stamp_of(folder: Path) -> Stamp:
    """Tells whether a run has been written to."""
    return _stamp(folder / "run" / LOG), _stamp(folder / "run" / "recipe.toml")


class LiveRun:
    """A run that may still be training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._log, self._end = EventLog(), 0
        self._read: tuple[Stamp, History] | None = None

    def read(self) -> History:
        """The run as it is now."""
        with self._lock:
            stamp = stamp_of(self.folder)
            if self._read is not None and self._read[0] == stamp and not self._has_ended(self._read[1]):
                return self._read[1]
            (file, _, size), _ = stamp
            if self._read is None or self._read[0][0][0] != file or size < self._end:  # another log
                self._log, self._end = EventLog(), 0
            end = last_line_end(self.folder / "run" / LOG, size) if size else 0
            history = read_run(self.folder, self._log, self._end, end)
            self._end, self._read = end, (stamp, history)
            return history

    def _has_ended(self, history: History) -> bool:
        """Whether a run is no longer training, without a word in its log: its process was killed."""
        return history.status == "running" and not is_running(self.folder)


class LiveRuns:
    """The runs that were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[Path, LiveRun] = OrderedDict()

    def read(self, folder: Path) -> History:
        """A run as it is now."""
        with self._lock:
            run = self._runs.setdefault(folder, LiveRun(folder))
            self._runs.move_to_end(folder)
            while len(self._runs) > KEPT:
                self._runs.popitem(last=False)
        return run.read()


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size
