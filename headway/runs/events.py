"""The log of a run, read back: the events that count after restarts and rewinds.

A log may be truncated by a crash, written by another version or edited by hand: a line that is not an event is
skipped, and a value that is not a number counts as missing.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import NotFoundError

Series = NDArray[np.float64]
Event = dict[str, Any]

COLUMNS = ("step", "tokens", "seconds", "loss", "lr", "grad_norm", "share")
"""The numbers kept of each step; NaN where the log has none."""
LINE_LIMIT = 64_000_000
"""Bytes of a line; headway writes no longer ones."""
SESSION_STARTS = ("start", "restart")
REWOUND = ("save", "spike", "best")
"""Events that a rewind removes together with their steps; all other events stay."""


def as_float(value: Any) -> float | None:
    """A finite number as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def as_count(value: Any) -> int | None:
    """A count, such as the number of a step, as an int; None for anything else."""
    found = as_float(value)
    return int(found) if found is not None and 0 <= found < 2**53 else None


def smooth(values: Series, window: int = 0) -> Series:
    """A moving average around each point, of fewer points at the ends, ignoring values that are not finite.

    Averaging twice gives near points more weight: a spike becomes a small hill, not a block.
    """
    window = window or smoothing_window(len(values))
    first = window // 2 + 1
    return _mean(_mean(values, first), window - first + 1)


def _mean(values: Series, window: int) -> Series:
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    at = np.arange(len(values))
    low = np.maximum(at - (window - 1) // 2, 0)
    high = np.minimum(at + window // 2, len(values) - 1) + 1
    number = counts[high] - counts[low]
    return np.where(number > 0, (sums[high] - sums[low]) / np.maximum(number, 1), np.nan)


def smoothing_window(points: int) -> int:
    """The window of the moving average for a curve with so many points."""
    return max(1, points // 40)


def read_events(path: Path) -> Iterator[Event]:
    """The events of a log; an empty event stands for each line that is not one."""
    try:
        with path.open("rb") as file:
            # Lines end at \n only: a sample may hold any other character that Python would split at.
            for raw in iter(lambda: file.readline(LINE_LIMIT), b""):
                yield _parse(raw) or _parse(raw[raw.rfind(b'{"event"') :] if raw.count(b'{"event"') > 1 else b"") or {}
    except FileNotFoundError:
        raise NotFoundError("F001", f"no such file: {path}") from None
    except OSError as error:
        raise NotFoundError("F001", f"{path}: cannot be read: {error.strerror or error}") from None


def _parse(raw: bytes) -> Event | None:
    """One event; None for a line that a crash truncated, to which a resumed run may have appended."""
    try:
        event = json.loads(raw.decode())  # from bytes, json would guess an encoding line by line
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


class EventLog:
    """Events in the order of the log; a step that was repeated replaces the earlier one."""

    def __init__(self) -> None:
        self._columns = {name: array("d") for name in COLUMNS}
        self.evals: list[Event] = []
        self.samples: list[Event] = []
        self.events: list[Event] = []
        """All events but steps, evaluations and samples."""
        self.lines, self.bad_lines = 0, 0
        self.wall = 0.0
        """Seconds from the first to the last event of each session, summed."""
        self.first_time: float | None = None
        self.last_time: float | None = None

    def add(self, event: Event) -> None:
        kind, step = event.get("event"), as_count(event.get("step"))
        self.lines += 1
        if kind is None:
            self.bad_lines += 1
            return
        self._clock(as_float(event.get("time")), new_session=kind in SESSION_STARTS)
        if kind == "step":
            if step is not None:
                self._step(step, event)
            return
        if kind in SESSION_STARTS and step is not None:
            self._rewind(step)
        if kind in ("eval", "sample"):
            series = self.evals if kind == "eval" else self.samples
            if series and step is not None and as_count(series[-1].get("step")) == step:
                series.pop()  # repeated after a restart at this step
            series.append(event)
        else:
            self.events.append(event)

    def _clock(self, time: float | None, new_session: bool) -> None:
        if time is None:
            return
        if self.first_time is None:
            self.first_time = time
        elif self.last_time is not None and not new_session:
            self.wall += max(0.0, time - self.last_time)
        self.last_time = time

    def _step(self, step: int, event: Event) -> None:
        seen = self._columns["step"]
        if seen and step <= seen[-1]:
            self._rewind(step - 1)
        for name, column in self._columns.items():
            value = event.get(name)
            if type(value) is not float:  # most are: a log may have a million steps
                known = as_float(value)
                value = math.nan if known is None else known
            column.append(value)

    def _rewind(self, step: int) -> None:
        """Remove all that came after a step."""
        kept = bisect_right(self._columns["step"], step)
        for column in self._columns.values():
            del column[kept:]
        self.evals = [e for e in self.evals if (as_count(e.get("step")) or 0) <= step]
        self.samples = [e for e in self.samples if (as_count(e.get("step")) or 0) <= step]
        self.events = [e for e in self.events if e["event"] not in REWOUND or (as_count(e.get("step")) or 0) <= step]

    def columns(self) -> dict[str, Series]:
        """The steps as arrays, one for each of COLUMNS."""
        found = {name: np.array(column, dtype=np.float64) for name, column in self._columns.items()}
        for values in found.values():
            values[~np.isfinite(values)] = np.nan
        return found
