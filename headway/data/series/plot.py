"""A picture of series: a panel for each column, curves of what was read, of what followed and of what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.data.series.times import Numbers
from headway.data.synthetic.pictures import DIGITS

WIDTH, HEIGHT, LEFT, GAP = 960, 140, 64, 10
"""Pixels of a panel, of its labels and around it."""
MOST = 8
"""Columns that are drawn."""
BEFORE, TRUE, PREDICTED, BAND, GRID, INK = (
    (90, 98, 112), (39, 140, 88), (214, 84, 32), (250, 222, 205), (232, 232, 232), (90, 90, 90),
)  # fmt: skip
SIGNS = {"-": "00000 00000 00000 01110", ".": "00000 00000 00000 00000 00000 01100 01100", "e": "00000 00000 01110"}
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Curves:
    """One column."""

    name: str
    before: Numbers
    after: Numbers
    true: Numbers | None = None
    """What really followed."""
    bounds: tuple[Numbers, Numbers] | None = None
    """The lowest and the highest quantile."""

    @property
    def known(self) -> Numbers:
        """All numbers that are drawn."""
        parts = [self.before, self.after, *([] if self.true is None else [self.true]), *(self.bounds or ())]
        every = np.concatenate(parts)
        return np.asarray(every[np.isfinite(every)])


def picture(columns: Sequence[Curves]) -> Pixels:
    """Panels one below the other, (height, width, 3); grey was read, green followed, orange is predicted."""
    return np.concatenate([_panel(column) for column in columns[:MOST]])


def _panel(column: Curves) -> Pixels:
    sheet = np.full((HEIGHT + 2 * GAP, WIDTH, 3), 255, np.uint8)
    known = column.known
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    count = len(column.before) + len(column.after)

    def across(places: Numbers) -> Numbers:
        return LEFT + (WIDTH - LEFT - GAP) * places / max(1, count - 1)

    def up(values: Numbers) -> Numbers:
        return GAP + HEIGHT * (1 - (values - low) / ((high - low) or 1))

    for value in (low, high):
        sheet[int(up(np.array(value)).clip(0, len(sheet) - 1)), LEFT : WIDTH - GAP] = GRID
        _write(sheet, f"{value:.4g}", int(up(np.array(value))) - 3)
    later = across(np.arange(len(column.before), count).astype(float))
    sheet[:, int(across(np.array(len(column.before) - 0.5)))] = GRID
    if column.bounds is not None:
        _band(sheet, later, *map(up, column.bounds))
    _line(sheet, across(np.arange(len(column.before)).astype(float)), up(column.before), BEFORE)
    if column.true is not None:
        _line(sheet, later[: len(column.true)], up(column.true), TRUE)
    _line(sheet, later, up(column.after), PREDICTED)
    return sheet


def _line(sheet: Pixels, x: Numbers, y: Numbers, colour: tuple[int, int, int]) -> None:
    """Points joined by lines two pixels thick."""
    there = np.isfinite(y)
    if there.sum() < 2:
        return
    length = np.hypot(np.diff(x[there]), np.diff(y[there])).cumsum()
    at = np.linspace(0, length[-1], 2 * int(length[-1]) + 2)
    places = np.concatenate([[0.0], length])
    columns, rows = (np.interp(at, places, each[there]).round().astype(int) for each in (x, y))
    for step in (0, 1):
        sheet[(rows + step).clip(0, len(sheet) - 1), columns.clip(0, WIDTH - 1)] = colour


def _band(sheet: Pixels, x: Numbers, low: Numbers, high: Numbers) -> None:
    for column in range(int(x[0]), int(x[-1]) + 1):
        bottom, top = np.interp(column, x, low), np.interp(column, x, high)
        sheet[int(max(0, top)) : int(bottom) + 1, column] = BAND


def _write(sheet: Pixels, text: str, top: int) -> None:
    """A number beside the axis."""
    left = LEFT - 6 - 6 * len(text)
    for place, sign in enumerate(text):
        for row, dots in enumerate((DIGITS | SIGNS).get(sign, "").split()):
            for column, dot in enumerate(dots):
                if dot == "1" and 0 <= top + row < len(sheet):
                    sheet[top + row, left + 6 * place + column] = INK
