"""Settings as Python has them: keywords, nested dicts and `key=value` words become the words of a command line.

One way in: what a keyword means is what the same word means to `headway train`. No torch here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from headway.config.keys import did_you_mean
from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.toml import key_of, parse_overrides, short
from headway.errors import ConfigError
from headway.tasks.recipe import PLAIN, Recipe, load_recipe, setting_word
from headway.tasks.registry import get_task

SHARED = {"data": DataConfig, "model": ShapeConfig, "train": TrainConfig}
SEPARATORS = set(",[]{}\"'+=# ")
"""Characters that mean something inside a word of `headway compare`."""


def recipe_words(recipe: str, given: Sequence[str | Mapping[str, Any]], more: Mapping[str, Any]) -> list[str]:
    """All settings of a call as words, in order: `key=value` words and mappings, then keywords."""
    settings: list[str | tuple[str, Any]] = []
    for each in given:
        if isinstance(each, str):
            settings.append(each)
        elif isinstance(each, Mapping):
            settings += each.items()
        else:
            raise ConfigError(
                "C002", f"{short(each)} is not a setting", 'write train={"steps": 200} or "train.steps=200"'
            )
    settings += more.items()
    task = recipe_task(recipe, settings)
    return [word for each in settings for word in ([each] if isinstance(each, str) else _words(*each, task))]


def run_words(task: str, more: Mapping[str, Any]) -> list[str]:
    """Keywords for a run that has its recipe already."""
    return [word for key, value in more.items() for word in _words(key, value, task)]


def recipe_task(recipe: str, settings: Sequence[str | tuple[str, Any]]) -> str:
    """The task of a recipe by its name; `task=…` may replace it."""
    task = load_recipe(recipe)[1].task
    for each in settings:
        key, value = each if isinstance(each, tuple) else next(iter(parse_overrides([setting_word(each)]).items()))
        task = value if key == "task" and isinstance(value, str) else task
    return task


def _words(key: str, value: Any, task: str) -> Iterator[str]:
    key = full_key(key, task)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _words(f"{key}.{key_of(str(name))}", inner, task)
    else:
        yield word(PLAIN.get(key, key), value)


def word(key: str, value: Any) -> str:
    """One setting as a word that reads back as the same value."""
    value = plain(value)
    if isinstance(value, str) and not SEPARATORS & set(value) and parse_overrides([f"x={value}"])["x"] == value:
        return f"{key}={value}"
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise ConfigError("C002", f"{key} = {short(value)} is no text, number, true, false or a list of them") from None
    if value is None or (isinstance(value, list) and not value):
        raise ConfigError("C002", f"{key} = {short(value)} is no value", "leave the setting out for its default")
    return f"{key}=" + text.replace("\x7f", "\\u007f")  # JSON allows it, TOML does not


def plain(value: Any) -> Any:
    """A path as text, a number of numpy or pandas as Python's, a tuple as a list."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def full_key(key: str, task: str) -> str:
    """The dotted name of a setting; a last part alone is enough where only one section has it: steps → train.steps."""
    known = setting_keys(task)
    key = ".".join(key_of(part) for part in key.split("."))
    sections = {name.partition(".")[0] for name in known}
    if key.partition(".")[0] in sections:
        return key
    found = [name for name in known if name.rpartition(".")[2] == key]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError("C014", f"{key} may be {' or '.join(found)}", f'write the one you mean: "{found[0]}=…"')
    raise ConfigError("C014", f"unknown setting {key}{did_you_mean(key, known)}", "headway explain lists all settings")


def setting_keys(task: str) -> list[str]:
    """The dotted names of all settings of a recipe for a task."""
    sections = {**SHARED, task: get_task(task).Settings}
    top = [key_of(each.name) for each in fields(Recipe) if each.name not in (*SHARED, "settings")]
    return top + [f"{name}.{key_of(each.name)}" for name, kind in sections.items() for each in fields(kind)]
