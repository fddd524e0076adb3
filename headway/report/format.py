"""Numbers, sizes and times as text, for the report, the model card and the list of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import TypeGuard

from headway.progress import printable

ABSENT = "–"
"""Printed where the log has no value."""


def count(value: float | None) -> str:
    """1,234,567"""
    return ABSENT if not _finite(value) else f"{value:,.0f}"


def brief(value: float | None) -> str:
    """834k, 1.2M, 7B, 3.1e+21: three digits."""
    if not _finite(value):
        return ABSENT
    if abs(value) >= 1e15:
        return f"{value:.1e}"
    for limit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 0.9995:  # 999,950 is 1M, not 1000k
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def of_all(part: float | None, whole: float | None) -> str:
    """22.7M; 300k of 22.7M if it is only a part."""
    if not _finite(part) or not _finite(whole) or part >= whole:
        return brief(whole)
    return f"{brief(part)} of {brief(whole)}"


def number(value: float | None) -> str:
    """A measured value with four digits, without exponent if possible."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
    return f"{value:.3g}"


def fixed(value: float | None) -> str:
    """A measured value with three decimals, for a column."""
    if value is None or not 0.01 <= abs(value) < 1e4 or value == round(value) > 99:
        return number(value)
    return f"{value:.3f}"


def percent(share: float | None) -> str:
    """12 %; 0.4 % if rounding would hide it."""
    if not _finite(share):
        return ABSENT
    return f"{100 * share:.1f} %" if 0 < share < 0.095 else f"{100 * share:.0f} %"


def metric_title(metric: str) -> str:
    """The title of the primary metric."""
    return "validation loss" if metric == "valid" else printable(metric.replace("_", " "))[:40]


def duration(seconds: float | None) -> str:
    """37 s, 12 min 5 s, 3 h 20 min, 2 d 4 h"""
    if not _finite(seconds) or seconds < 0:
        return ABSENT
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            large, rest = divmod(whole, size)
            return f"{large} {unit} {rest // smaller} {small_unit}" if rest // smaller else f"{large} {unit}"
    return f"{whole} s"


def size(amount: float | None) -> str:
    """13.4 MB"""
    if not _finite(amount):
        return ABSENT
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if amount >= limit * 0.9995:
            return f"{amount / limit:.3g} {unit}"
    return f"{amount:.0f} B"


def moment(time: float | None) -> str:
    """2026-03-01 14:05, in the local time zone."""
    try:
        return ABSENT if time is None else datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # the clock was wrong
        return ABSENT


def join_words(words: Iterable[str]) -> str:
    """a, b and c"""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
