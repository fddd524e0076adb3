"""The log of a run, read back: the events that count after restarts and rewinds.

A log may be truncated by a crash, written by another version or edited by hand: a line that is not an event is
skipped, and a value that is not a number counts as missing.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
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
BLOCK = 4096
"""Lines that are parsed at once."""
TAIL = 1 << 20
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


def read_events(path: Path, start: int = 0, end: float = math.inf) -> Iterator[Event]:
    """The events between two bytes of a log; an empty event stands for each line that is not one."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            lines: list[bytes] = []
            # Lines end at \n only: a sample may hold any other character that Python would split at.
            for raw in iter(lambda: file.readline(LINE_LIMIT), b""):
                if start >= end:
                    break
                start += len(raw)
                lines.append(raw)
                if len(lines) == BLOCK:
                    yield from _parse_all(lines)
                    lines = []
            yield from _parse_all(lines)
    except FileNotFoundError:
        raise NotFoundError("F001", f"no such file: {path}") from None
    except OSError as error:
        raise NotFoundError("F001", f"{path}: cannot be read: {error.strerror or error}") from None


def last_line_end(path: Path, size: int) -> int:
    """The byte after the last whole line within the first `size` bytes of a file."""
    with path.open("rb") as file:
        for end in range(size, 0, -TAIL):
            start = max(0, end - TAIL)
            file.seek(start)
            if (found := file.read(end - start).rfind(b"\n")) >= 0:
                return start + found + 1
    return 0


def _parse_all(lines: Sequence[bytes]) -> list[Event]:
    """The events of some lines. One call for all of them is twice as fast as one for each; damage needs each."""
    try:
        events: list[Event] = json.loads(f"[{b','.join(lines).decode()}]")
    except (ValueError, RecursionError):
        events = []
    if len(events) == len(lines) and all(isinstance(e, dict) and isinstance(e.get("event"), str) for e in events):
        return events
    return [
        _parse(raw) or _parse(raw[raw.rfind(b'{"event"') :] if raw.count(b'{"event"') > 1 else b"") or {}
        for raw in lines
    ]


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

    def add_all(self, events: Iterable[Event]) -> None:
        """Add events in their order, steps in blocks: a log may have a million of them."""
        steps: list[Event] = []
        for event in events:
            if event.get("event") == "step":
                steps.append(event)
            if steps and (steps[-1] is not event or len(steps) == BLOCK):
                self._add_steps(steps)
                steps = []
            if event.get("event") != "step":
                self.add(event)
        self._add_steps(steps)

    def _add_steps(self, events: Sequence[Event]) -> None:
        """Add steps at once if they follow each other and all of their values are numbers; else one by one."""
        found = {name: [event.get(name, math.nan) for event in events] for name in (*COLUMNS, "time")}
        plain = all(set(map(type, values)) <= {int, float} for values in found.values())
        steps, times, seen = found["step"], found.pop("time"), self._columns["step"]
        try:
            follow = plain and set(map(type, steps)) == {int} and all(a < b for a, b in pairwise([-1, *steps, 2**53]))
            if not follow or (seen and steps[0] <= seen[-1]) or not math.isfinite(sum(times)):
                raise OverflowError
            columns = {name: array("d", values) for name, values in found.items()}
        except OverflowError:  # a whole number may be too large for a float
            for event in events:
                self.add(event)
            return
        for name, column in columns.items():
            self._columns[name].extend(column)
        self.lines += len(events)
        self._clock(times[0], new_session=False)
        self.wall += sum(max(0.0, after - before) for before, after in pairwise(times))
        self.last_time = times[-1]

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
