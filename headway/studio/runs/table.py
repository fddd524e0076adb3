"""The list of runs, kept up to date: a run is read again when it has been written to, and not before."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from headway.api.past_runs import run_numbers
from headway.errors import HeadwayError
from headway.hub.run_names import is_running, run_folders
from headway.runs.events import Series, as_float, smooth
from headway.runs.history import History, read_run
from headway.studio.runs.live import LiveRuns, Stamp, stamp_of

POINTS = 40
"""Points of the small curve of a row."""
BUDGETS = (0.15, 2.0)
"""Seconds of reading, for the first answer and for later ones: the page shows the newest runs at once."""
Row = dict[str, Any]


class RunTable:
    """A row for each run of a folder."""

    def __init__(self, out: Path, live: LiveRuns) -> None:
        self.out, self.live = out, live
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[Stamp, Row]] = {}

    def rows(self) -> dict[str, Row]:
        """Name → row, newest first. A run that has not been read yet has its name only, and the status `unread`."""
        with self._lock:
            until, found = time.monotonic() + BUDGETS[bool(self._rows)], {}
            for folder in reversed(run_folders(self.out)):
                found[folder.name] = self._row(folder, read=time.monotonic() < until)
            for name in self._rows.keys() - found.keys():
                del self._rows[name]
            return found

    def _row(self, folder: Path, read: bool) -> Row:
        stamp, known = stamp_of(folder), self._rows.get(folder.name)
        if known is not None and known[0] == stamp:
            if known[1]["status"] != "running" or is_running(folder):
                return known[1]
        elif not read:
            return {"name": folder.name, "status": "unread"} if known is None else known[1]
        training = known is not None and known[1]["status"] == "running"
        try:
            row = _row_of(self.live.read(folder) if training else read_run(folder))
        except HeadwayError as error:  # it has been deleted meanwhile
            row = {"name": folder.name, "status": "broken", "problem": error.message}
        row["written"] = stamp[1][1] / 1e9
        self._rows[folder.name] = stamp, row
        return row


def _row_of(run: History) -> Row:
    facts = run_numbers(run)
    return {
        **facts,
        "seed": run.recipe.get("seed") if isinstance(run.recipe.get("seed"), int) else None,
        "share": as_float(float(run.steps["share"][-1])) if len(run.steps["share"]) else None,
        "curve": small_curve(run.steps["loss"]),
    }


def small_curve(values: Series) -> list[float | None]:
    """A curve as a few points: means of the smoothed values, without the first ones, which would flatten the rest."""
    drawn = smooth(values)[len(values) // 50 :]
    if len(drawn) < 2:
        return []
    parts = (part[np.isfinite(part)] for part in np.array_split(drawn, min(POINTS, len(drawn))))
    return [float(f"{part.mean():.4g}") if len(part) else None for part in parts]
