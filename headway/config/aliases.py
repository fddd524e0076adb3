"""Renamed recipe settings, old key → new key: older recipes and runs still load. No torch here.

To rename a setting, rename the field of its dataclass and add one line to `ALIASES`, or to the `renamed` of its task. A
whole section is renamed in the same way ("old": "new"). Recipe files, `key=value` words and nested overrides get a note
for each old key; the recipes in run folders and checkpoints get none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from headway.errors import ConfigError

ALIASES = {
    "train.record": "train.cuda_graphs",
    "train.checkpointing": "train.gradient_checkpointing",
}
"""Old dotted key → new dotted key, for the sections that all tasks share; `Task.renamed` has those of a task."""


def current_keys(values: Mapping[str, Any], aliases: Mapping[str, str], note: bool = True) -> dict[str, Any]:
    """Nested settings under their current keys; `note` logs each old key once, which prints it on stderr."""
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for old, new in aliases.items():
        table, key = _table(result, old)
        if table is None or key not in table:
            continue
        value = table.pop(key)
        target, name = _table(result, new, create=True)
        if target is None or name in target:
            raise ConfigError("C004", f"{old} is now called {new}, and both are given: remove {old}")
        target[name] = value
        if note:
            _note(old, new)
    return result


def _table(values: dict[str, Any], key: str, *, create: bool = False) -> tuple[dict[str, Any] | None, str]:
    """The table that a dotted key belongs to, and its last part; None if there is no such table."""
    section, _, name = key.rpartition(".")
    if not section:
        return values, name
    table = values.setdefault(section, {}) if create else values.get(section)
    return (table if isinstance(table, dict) else None), name


@cache
def _note(old: str, new: str) -> None:
    logging.getLogger("headway").warning("%s is now called %s", old, new)
