"""Which settings of a recipe a resumed run may change, and which it did change.

Each section of a recipe lists the settings that are free in its class attribute `free_on_resume`: how long, how fast,
how often and where a run computes. All others are fixed, since they decide what is learned and how it is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from headway.config.toml import key_of, short
from headway.errors import ConfigError
from headway.tasks.recipe import SETTINGS, Recipe, batch_size


class Change(NamedTuple):
    """A setting with another value than before."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} → {_shown(self.now)}"


def flat(config: Any, where: str = "") -> dict[str, Any]:
    """All settings of a recipe by their dotted keys."""
    found: dict[str, Any] = {}
    for field in fields(config):
        name = config.task if field.name == SETTINGS else key_of(field.name)
        key, value = where + name, getattr(config, field.name)
        found |= flat(value, f"{key}.") if is_dataclass(value) else {key: value}
    return found


def free_settings(config: Any, where: str = "") -> set[str]:
    """The dotted keys of the settings that a resumed run may change."""
    found = {where + key for key in getattr(config, "free_on_resume", ())}
    for field in fields(config):
        if is_dataclass(section := getattr(config, field.name)):
            name = config.task if field.name == SETTINGS else key_of(field.name)
            found |= free_settings(section, f"{where}{name}.")
    return found


def recipe_changes(before: Recipe, now: Recipe) -> list[Change]:
    """The settings that differ, in the order of the recipe."""
    was, current = flat(before), flat(now)
    return [Change(key, was.get(key), value) for key, value in current.items() if was.get(key) != value]


def check_changes(before: Recipe, now: Recipe) -> list[Change]:
    """The changes of a resumed recipe; an error if one of them is fixed."""
    changes, free = recipe_changes(before, now), free_settings(now)
    if refused := [change for change in changes if change.key not in free]:
        listed = "; ".join(map(str, refused))
        hint = "resume with the old value, or start a new run: headway train RECIPE"
        raise ConfigError("C040", f"a resumed run cannot change {listed}", hint)
    if (old := batch_size(before)) != (new := batch_size(now)):
        why = f"train.accumulate = {now.train.accumulate} changes the batch size from {old} to {new}"
        raise ConfigError("C040", why, f"choose a divisor of {old}")
    return changes


def value_changes(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> list[Change]:
    """Nested plain values that differ. Keys that only one side has come from another version of headway, and pass."""
    found = []
    for key in before.keys() & now.keys():
        old, new = before[key], now[key]
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += value_changes(old, new, f"{where}{key}.")
        elif old != new:
            found.append(Change(where + key, old, new))
    return sorted(found, key=lambda change: change.key)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "unset"
    return value if isinstance(value, str) and len(value) <= 100 else short(value)
