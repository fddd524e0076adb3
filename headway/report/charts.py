"""Line charts: SVG for a page, braille dots for a terminal.

A chart is stretched to the width of the page. Its SVG holds lines only, whose stroke width does not stretch; labels
are HTML, placed in per cent, so that they keep their size on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from headway.report.format import ABSENT, brief, number
from headway.report.page import render_macro
from headway.runs.events import Series

WIDTH, HEIGHT = 1000, 100
"""Size of the SVG in its own units."""
BINS = 800
"""A long curve is drawn as the lowest and the highest point of this many bins."""
TABLE_ROWS, MOST_DOTS = 40, 60
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the braille dots, by row and column."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a panel."""

    name: str
    look: str
    """A CSS class of the page: `raw`, `train`, `valid`, …; `valid` also draws a dot at each point."""
    x: Series
    y: Series
    dots: bool = False
    """Draw a dot at each point, whatever the look: for few points."""
    band: tuple[Series, Series] | None = None
    """The lowest and the highest value at each x, drawn as an area behind the curve."""

    @property
    def dotted(self) -> bool:
        return self.dots or self.look == "valid"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves on a common scale."""

    key: str
    title: str
    describe: str
    lines: Sequence[Line]
    log: bool = False
    """Also draw it on a logarithmic scale, to switch to."""
    tall: bool = False


@dataclass(frozen=True)
class Scale:
    """Maps values to 0 … 1, bottom to top."""

    low: float
    high: float
    log: bool = False

    def __call__(self, values: Series) -> Series:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = np.log(values) if self.log else values
            result: Series = (plain - low) / (high - low)
        return result

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else nice_ticks(self.low, self.high)


def downsample(x: Series, y: Series, bins: int = BINS) -> tuple[Series, Series]:
    """The lowest and the highest point of each bin, so that no spike is lost; a short curve stays as it is."""
    if len(x) <= 2 * bins:
        return x, y
    width = -(-len(x) // bins)
    rows = np.concatenate([y, np.full(-len(y) % width, np.nan)]).reshape(-1, width)
    low = np.where(np.isfinite(rows), rows, np.inf).argmin(1)
    high = np.where(np.isfinite(rows), rows, -np.inf).argmax(1)
    base = np.arange(len(rows)) * width
    at = np.unique(np.concatenate([[0], base + low, base + high, [len(x) - 1]]))
    return x[at], y[at]


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between low and high."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(step * f for f in (1, 2, 5, 10) if (high - low) / (step * f) <= most)
    return [round(i * step, 12) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; if there are too few, also 2 and 5 times these, or round numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = -(-len(powers) // 6)
    for factors in ((1,), (1, 2, 5)):
        found = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high and p % every == 0]
        if len(found) >= 3:
            return found
    return nice_ticks(low, high, 4)


def scale_for(lines: Sequence[Line], log: bool) -> Scale | None:
    """A scale for all curves. A spike of more than four times the 99th percentile is cut off."""
    drawn = [y for line in lines for y in (line.y, *(line.band or ()))]
    values = [y[np.isfinite(y)] for y in drawn]
    values = [v[v > 0] if log else v for v in values]
    if not any(len(v) for v in values):
        return None
    low = min(float(v.min()) for v in values if len(v))
    high = max(_top(v) for v in values if len(v))
    if not high > low:
        high, low = (high * 1.1, high / 1.1) if log else (high + (abs(high) or 1) * 0.1, low - (abs(low) or 1) * 0.1)
    margin = (high / low) ** 0.04 if log else (high - low) * 0.04
    return Scale(low / margin, high * margin, True) if log else Scale(low - margin, high + margin)


def _top(values: Series) -> float:
    usual, most = float(np.quantile(values, 0.99)), float(values.max())
    return most if most <= 4 * usual or usual <= 0 else usual


def path_of(x: Series, y: Series, x_scale: Scale, y_scale: Scale) -> str:
    """SVG path data, with gaps where values are missing."""
    parts, pen = [], "M"
    for a, b in zip(x_scale(x) * WIDTH, (1 - y_scale(y)) * HEIGHT, strict=True):
        if not math.isfinite(b):
            pen = "M"
            continue
        parts.append(f"{pen}{a:.1f} {min(max(b, -HEIGHT), 2 * HEIGHT):.1f}")
        pen = "L"
    return "".join(parts)


def view(panel: Panel, x_scale: Scale, marks: Sequence[tuple[str, float]]) -> dict[str, Any] | None:
    """The values that templates/charts.html draws; None if the panel has no value."""
    kinds = ("linear", "log") if panel.log else ("linear",)
    drawn = [(kind, scale) for kind in kinds if (scale := scale_for(panel.lines, kind == "log")) is not None]
    plots = [
        {
            "kind": kind,
            "ticks": [(100 * float(scale(np.array(t))), tick_name(t)) for t in scale.ticks()],
            "grid": "".join(f"M0 {(1 - float(scale(np.array(t)))) * HEIGHT:.1f}H{WIDTH}" for t in scale.ticks()),
            "curves": [_curve(line, x_scale, scale) for line in panel.lines],
        }
        for kind, scale in drawn
    ]
    rules = [(look, float(x_scale(np.array(at))) * WIDTH) for look, at in marks]
    size = {"width": WIDTH, "height": HEIGHT, "tall": panel.tall}
    words = {"key": panel.key, "title": panel.title, "describe": panel.describe}
    return {**words, **size, "legend": panel.lines, "plots": plots, "rules": rules} if plots else None


def axis_ticks(x_scale: Scale) -> list[tuple[float, str]]:
    """Positions in per cent, and their labels."""
    return [(100 * float(x_scale(np.array(t))), tick_name(t)) for t in nice_ticks(x_scale.low, x_scale.high)]


def _curve(line: Line, x_scale: Scale, y_scale: Scale) -> dict[str, str]:
    x, y = downsample(line.x, line.y)
    path, dots = path_of(x, y, x_scale, y_scale), ""
    if line.dotted and 0 < len(x) <= MOST_DOTS and path:  # a line of length zero is drawn as a dot
        dots = path.replace("L", "M").replace("M", "h0M").removeprefix("h0") + "h0"
    return {"look": line.look, "path": path, "dots": dots, "band": _band(line, x_scale, y_scale)}


def _band(line: Line, x_scale: Scale, y_scale: Scale) -> str:
    """The outline of a line's band: along the highest values, and back along the lowest."""
    if line.band is None:
        return ""
    low, high = line.band
    there = path_of(line.x, high, x_scale, y_scale)
    back = path_of(line.x[::-1], low[::-1], x_scale, y_scale)
    return f"{there}{back.replace('M', 'L')}Z"


def tick_name(value: float) -> str:
    return brief(value) if abs(value) >= 1e4 else number(value)


def table(lines: Sequence[Line], write: Callable[[float], str]) -> Markup:
    """The values of some curves as a table of at most TABLE_ROWS rows, with the first and the last step."""
    steps = np.unique(np.concatenate([line.x for line in lines if len(line.x)] or [np.empty(0)]))
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, min(TABLE_ROWS, len(steps))).round().astype(int))]
    rows = [[f"{step:,.0f}", *(_value_at(line, step, write) for line in lines)] for step in chosen]
    return render_macro("tables.html", "table", ["step", *(line.name for line in lines)], rows, "", "numbers")


def _value_at(line: Line, step: float, write: Callable[[float], str]) -> str:
    """The last value up to a step."""
    near = line.y[line.x <= step][-1:]
    return write(float(near[0])) if len(near) and np.isfinite(near[0]) else ABSENT


def text_chart(y: Series, width: int = 60, height: int = 8) -> list[str]:
    """A curve in braille dots, with its highest and lowest value; empty for fewer than two points."""
    y = y[np.isfinite(y)]
    if len(y) < 2:
        return []
    columns = [float(part.mean()) for part in np.array_split(y, min(2 * width, len(y)))]
    low, high = min(columns), max(columns)
    rows = 4 * height
    cells = [[0] * -(-len(columns) // 2) for _ in range(height)]
    before = None
    for i, value in enumerate(columns):
        level = round((high - value) / ((high - low) or 1) * (rows - 1))
        start = level if before is None else before + (level > before) - (level < before)
        for row in range(min(start, level), max(start, level) + 1):
            cells[row // 4][i // 2] |= DOTS[row % 4][i % 2]
        before = level
    labels = [number(high), *[""] * (height - 2), number(low)]
    wide = max(map(len, labels))
    drawn = ["".join(chr(0x2800 + cell) for cell in row) for row in cells]
    return [f"{label:>{wide}} ┤{row}" for label, row in zip(labels, drawn, strict=True)]
