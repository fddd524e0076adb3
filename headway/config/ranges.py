"""Range checks and conflicts of settings. No torch here."""

from __future__ import annotations

from typing import Any

from headway.errors import ConfigError


def in_range(config: Any, **ranges: tuple[float, float]) -> None:
    """Check that each named setting is between two bounds; None passes."""
    for name, (low, high) in ranges.items():
        if (value := getattr(config, name)) is not None and not low <= value <= high:  # a NaN is outside any range
            text = str(value)
            text = text if len(text) <= 60 else text[:57] + "…"
            raise ConfigError("C003", f"{name} = {text} is outside {low} … {high}")


def conflict(first: str, second: str, rule: str) -> ConfigError:
    """An error about two settings that do not go together."""
    return ConfigError("C004", f"{first} conflicts with {second}: {rule}")


def at_least(section: str, config: Any, **least: float) -> None:
    """Check that each named setting has at least this value; None passes."""
    for name, low in least.items():
        if (value := getattr(config, name)) is not None and not value >= low:
            raise ConfigError("C003", f"{section}.{name} = {value} should be at least {low}")


def above_zero(section: str, config: Any, *names: str) -> None:
    """Check that each named setting is positive; None passes."""
    for name in names:
        if (value := getattr(config, name)) is not None and not value > 0:
            raise ConfigError("C003", f"{section}.{name} = {value} should be above 0")


def shares(section: str, config: Any, *names: str) -> None:
    """Check that each named setting is in [0, 1)."""
    for name in names:
        if not 0 <= (value := getattr(config, name)) < 1:
            raise ConfigError("C003", f"{section}.{name} = {value} should be at least 0 and less than 1")


def check_encoding(setting: str, name: str) -> None:
    """Raise an error for a name that is no encoding of text."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        hint = "such as utf-8, cp1252 (Windows), latin-1 or utf-16"
        raise ConfigError("C003", f"{setting} = {name!r} is not an encoding of text", hint) from None
