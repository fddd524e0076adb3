"""Windows of series, and how series are split: the last parts are held out, never shuffled ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index
from headway.data.series.scaling import filled
from headway.data.series.times import DAY, Clock, Numbers
from headway.errors import ConfigError

SPLIT = re.compile(r"\s*([\d.]+(?:\s*/\s*[\d.]+){1,2})\s*(months|days|rows|)\s*")
MONTH_DAYS = 30
"""Days of a month in the splits of the literature (ETT: Zhou et al. 2021)."""


@dataclass(frozen=True)
class Windows:
    """Equally long stretches of one or several series, stored once."""

    values: NDArray[np.float32]
    """(T, C): standardised and filled, all series one after the other."""
    known: NDArray[np.bool_] | None
    """(T, C): false where a value was missing; None: nothing was."""
    starts: Index
    """(N,): where each window begins."""
    length: int

    def __len__(self) -> int:
        return len(self.starts)

    def read(self, which: Index | slice = slice(None)) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
        """Windows (B, length, C), and what of them is known."""
        places = self.starts[which][:, None] + np.arange(self.length)
        return self.values[places], None if self.known is None else self.known[places]

    def every(self, step: int) -> Windows:
        """Every so many-th window."""
        return Windows(self.values, self.known, self.starts[::step], self.length)


def make_windows(parts: Sequence[tuple[Numbers, int, int]], look_back: int, horizon: int) -> Windows:
    """All windows of some series, at every step. A series is (values (T, C), first, end): the targets of its windows
    are from `first` up to `end`; what is read may begin before, inside the same series."""
    values, known, starts, offset = list[Numbers](), list[NDArray[np.bool_]](), [np.zeros(0, np.int64)], 0
    for series, first, end in parts:
        begin = max(0, first - look_back)
        starts.append(np.arange(end - begin - look_back - horizon + 1) + offset)
        values.append(filled(series[:end])[begin:])
        known.append(np.isfinite(series[begin:end]))
        offset += end - begin
    there = np.concatenate(known)
    stored = np.concatenate(values).astype(np.float32)
    return Windows(stored, None if there.all() else there, np.concatenate(starts), look_back + horizon)


def check_split(setting: str, text: str) -> None:
    """Refuse a split that cannot be read."""
    try:
        parse_split(text)
    except ValueError:
        hint = 'such as "0.7/0.1/0.2", or "12/4/4 months" of 30 days; without the last part there is no test'
        raise ConfigError(
            "C003", f"{setting} = {text!r} is no split into training, validation and test", hint
        ) from None


def parse_split(text: str) -> tuple[list[float], str]:
    """Sizes of the parts, and their unit; without a unit they are shares."""
    found = SPLIT.fullmatch(text)
    if not found:
        raise ValueError
    sizes = [float(each) for each in found[1].split("/")]
    if not all(sizes) or (not found[2] and abs(sum(sizes) - 1) > 1e-9):
        raise ValueError
    return sizes, found[2]


def split_rows(text: str, rows: int, clock: Clock) -> tuple[int, int, int]:
    """Where training, validation and test end. Rows after the last part are left out."""
    sizes, unit = parse_split(text)
    if not unit:
        train = int(rows * sizes[0])
        test = int(rows * sizes[2]) if len(sizes) > 2 else 0
        return train, rows - test, rows
    each = 1.0
    if unit != "rows":
        if clock.kind != "date" or clock.monthly:
            raise ConfigError("C004", f"split = {text!r} needs a column of dates; one step is {clock}", "use shares")
        each = (MONTH_DAYS if unit == "months" else 1) * DAY / clock.step
    ends: list[Any] = np.cumsum([round(size * each) for size in sizes]).tolist()
    ends = [*ends, ends[-1]][:3]
    if ends[2] > rows:
        raise ConfigError("C004", f"split = {text!r} is {ends[2]:,} steps of {clock}, and there are {rows:,}")
    return ends[0], ends[1], ends[2]
