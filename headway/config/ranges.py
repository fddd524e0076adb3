"""Ranges of settings, checked and told from one place; conflicts of settings. No torch here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from headway.errors import ConfigError

Activation = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"]

MAX_LAYERS, MAX_WIDTH, MAX_LENGTH, MAX_VOCAB = 1_000, 1 << 18, 1 << 24, 1 << 24
"""Bounds no real model comes near: they stop a hostile file before it allocates anything."""


@dataclass(frozen=True)
class Range:
    """The values that a setting may have; with `above` the lower bound is not one of them, with `below` the upper."""

    low: float
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:  # a NaN is outside any range
        return bool(
            (self.low < value if self.above else self.low <= value)
            and (value < self.high if self.below else value <= self.high)
        )

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'at least'} {self.low:g}"
        return low if self.high == math.inf else f"{low} and {'less than' if self.below else 'at most'} {self.high:g}"


Found = dict[tuple[type, str], Range]
_FOUND: ContextVar[Found | None] = ContextVar("ranges", default=None)


@contextmanager
def recorded_ranges() -> Iterator[Found]:
    """(class, field) → range of all settings that are checked inside: `headway explain` reads them where they are."""
    found: Found = {}
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


def _allowed(config: Any, name: str, values: Range) -> bool:
    if (found := _FOUND.get()) is not None:
        found[type(config), name] = values
    value = getattr(config, name)
    return value is None or value in values


def in_range(config: Any, **ranges: tuple[float, float]) -> None:
    """Check that each named setting is between two bounds; None passes."""
    for name, (low, high) in ranges.items():
        if not _allowed(config, name, values := Range(low, high)):
            text = str(getattr(config, name))
            text = text if len(text) <= 60 else text[:57] + "…"
            why = f"should be {values}" if high == math.inf else f"is outside {low} … {high}"
            raise ConfigError("C003", f"{name} = {text} {why}")


def conflict(first: str, second: str, rule: str) -> ConfigError:
    """An error about two settings that do not go together."""
    return ConfigError("C004", f"{first} conflicts with {second}: {rule}")


def within(section: str, config: Any, values: Range, *names: str) -> None:
    """Check that each named setting is in a range; None passes."""
    for name in names:
        if not _allowed(config, name, values):
            raise ConfigError("C003", f"{section}.{name} = {getattr(config, name)} should be {values}")


def at_least(section: str, config: Any, **least: float) -> None:
    """Check that each named setting has at least this value; None passes."""
    for name, low in least.items():
        within(section, config, Range(low), name)


def above_zero(section: str, config: Any, *names: str) -> None:
    """Check that each named setting is positive; None passes."""
    within(section, config, Range(0, above=True), *names)


def shares(section: str, config: Any, *names: str) -> None:
    """Check that each named setting is in [0, 1)."""
    within(section, config, Range(0, 1, below=True), *names)


def check_encoding(setting: str, name: str) -> None:
    """Raise an error for a name that is no encoding of text."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        hint = "such as utf-8, cp1252 (Windows), latin-1 or utf-16"
        raise ConfigError("C003", f"{setting} = {name!r} is not an encoding of text", hint) from None
