"""Times of rows: parsed, put on a regular grid, continued.

A date is held as microseconds since 1970, so that steps are exact; a number is held as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.data.files.readers import NUMBER

Numbers = NDArray[np.float64]
SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime(1970, 1, 1)
TOLERANCE = 0.01
"""By how much of a step numbers may be off the grid: 0.1 + 0.2 is not 0.3."""
MOST_IN_SEASON = 2000
"""The most steps of a season that is guessed."""
GERMAN, SLASHES, MONTH = (
    re.compile(pattern) for pattern in (r"(\d\d?)\.(\d\d?)\.(\d{4})(.*)", r"(\d{4})/(\d\d?)/(\d\d?)(.*)", r"\d{4}-\d\d")
)
NAMES = ((DAY, "day"), (3600 * SECOND, "hour"), (60 * SECOND, "minute"), (SECOND, "second"))
Kind = Literal["date", "number", "rows"]


def parse_time(value: Any) -> tuple[Kind, float] | None:
    """A date in microseconds, or a number; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return ("number", float(value)) if np.isfinite(value) else None
    if isinstance(value, datetime):
        return "date", _microseconds(value)
    if isinstance(value, date):
        return "date", _microseconds(datetime(value.year, value.month, value.day))
    text = str(value).strip()
    if NUMBER.fullmatch(text):
        number = float(text)
        return ("number", number) if np.isfinite(number) else None
    try:
        return "date", _microseconds(datetime.fromisoformat(_iso(text)))
    except (ValueError, OverflowError):
        return None


def _iso(text: str) -> str:
    """Dates as ISO 8601 writes them. 3/4/2016 stays as it is: nobody knows which is the month."""
    if found := GERMAN.fullmatch(text):
        return f"{found[3]}-{found[2]:0>2}-{found[1]:0>2}{found[4]}"
    if found := SLASHES.fullmatch(text):
        return f"{found[1]}-{found[2]:0>2}-{found[3]:0>2}{found[4]}"
    return f"{text}-01" if MONTH.fullmatch(text) else text


def _microseconds(when: datetime) -> int:
    """Since 1970, in UTC where the time says how far from it."""
    if when.tzinfo is not None:
        when = when.astimezone(UTC).replace(tzinfo=None)
    return (when - EPOCH) // timedelta(microseconds=1)


def _months(times: Numbers) -> NDArray[np.int64]:
    return times.astype("int64").astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


@dataclass(frozen=True)
class Clock:
    """A regular grid of times."""

    kind: Kind = "rows"
    step: float = 1.0
    """In microseconds for dates; in months where they are whole months."""
    monthly: bool = False

    def positions(self, times: Numbers) -> Numbers:
        """Steps since the first of these times; not whole off the grid."""
        if not self.monthly:
            return np.asarray((times - times[0]) / self.step)
        months = _months(times)
        inside = times - months.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
        return np.asarray((months - months[0]) / self.step) + np.where(abs(inside - inside[0]) < DAY / 2, 0.0, 0.5)

    def after(self, last: float, count: int) -> Numbers:
        """The `count` times that follow."""
        steps = np.arange(1, count + 1)
        if not self.monthly:
            return np.asarray(last + steps * self.step, np.float64)
        month = _months(np.array([last]))[0]
        start = np.array([month]).astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)[0]
        months = (month + steps * int(self.step)).astype("datetime64[M]")
        return np.asarray(months.astype("datetime64[us]").astype(np.int64) + (last - start), np.float64)

    def shown(self, times: Numbers) -> list[Any]:
        """As people write them: days without hours where every time is midnight."""
        if self.kind != "date":
            return [float(f"{value:.10g}") for value in times]
        whole = bool((times % DAY == 0).all()) and (self.monthly or self.step % DAY == 0)
        dates = [EPOCH + timedelta(microseconds=int(value)) for value in times]
        return [each.strftime("%Y-%m-%d") if whole else each.isoformat(" ") for each in dates]

    def __str__(self) -> str:
        """One step: 1 hour, 15 minutes, 0.01, 1 row."""
        if self.kind == "number":
            return f"{self.step:g}"
        name, size = ("row", 1.0) if self.kind == "rows" else ("month", 1.0)
        if self.kind == "date" and not self.monthly:
            size, name = next((pair for pair in NAMES if self.step % pair[0] == 0), (SECOND, "second"))
        count = self.step / size
        return f"{count:g} {name}{'' if count == 1 else 's'}"

    @property
    def season(self) -> int:
        """Steps of the season that such data usually have: a day, a week of days, a year; 0: nobody knows."""
        if self.kind != "date":
            return 0
        if self.monthly:
            return int(12 // self.step) if 12 % self.step == 0 and self.step < 12 else 0
        for season in (DAY, 3600 * SECOND, 60 * SECOND, 7 * DAY, 364 * DAY):
            steps = season / self.step
            if steps == int(steps) and 1 < steps <= MOST_IN_SEASON:
                return int(steps)
        return 0

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "step": self.step, "monthly": self.monthly}


def find_clock(kind: Kind, times: Numbers) -> Clock:
    """The grid of some rising times: the most common step, or whole months."""
    if kind == "rows" or len(times) < 2:
        return Clock(kind)
    if kind == "date" and np.median(np.diff(times)) >= 28 * DAY:
        months = _months(times)
        clock = Clock("date", float(max(1, _most_common(np.diff(months)))), True)
        if (clock.positions(times) % 1 == 0).all():
            return clock
    steps = np.diff(times)
    if kind == "number":  # differences of decimals are not quite equal
        usual = float(np.sort(steps)[len(steps) // 2])
        return Clock("number", float(np.median(steps[abs(steps - usual) < TOLERANCE * usual])))
    return Clock("date", float(_most_common(steps)))


def _most_common(values: Sequence[Any] | NDArray[Any]) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()])
