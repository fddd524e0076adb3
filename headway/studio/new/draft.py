"""A run before it starts, in three forms that say the same: settings of a form, a TOML file, a command line.

The state is a recipe and `key=value` words, as `headway train` takes them. An edit of any form becomes words, and the
reader of recipes judges them: an error says which setting it is about, and at which line of the TOML.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.api.settings import word
from headway.config.toml import line_of, parse_overrides, read_toml, to_toml
from headway.errors import ConfigError, HeadwayError, UsageError
from headway.reference.recipes import recipe as recipe_facts
from headway.reference.settings import Setting, options, recipe_settings
from headway.studio.errors import described
from headway.tasks.defaults.choose import chooses, nested
from headway.tasks.recipe import (
    BUDGET,
    LISTS,
    current_settings,
    load_recipe,
    recipe_names,
    recipe_values,
    setting_word,
    with_settings,
)
from headway.tasks.registry import get_task, task_names

PROGRAM = re.compile(r"(?:\S*python\S*\s+-m\s+)?headway\s+train(?:\s+|$)")
UNKNOWN = re.compile(r"unknown setting '?([\w.-]+)")
PLACE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
Values = dict[str, Any]
"""Dotted key → plain value."""


def draft(recipe: str, words: Sequence[str], chosen: Mapping[str, Any], toml: str = "") -> dict[str, Any]:
    """A recipe with words, in all forms. A mistake is an `error`, at its key and its line of `toml`."""
    found: dict[str, Any] = {"recipe": recipe, "words": list(words), "command": command(recipe, words)}
    try:
        flat = flat_words(words)
        name, made = load_recipe(recipe, [word(key, value) for key, value in flat.items()])
    except HeadwayError as error:
        return {**found, "error": placed(error, words, toml)}
    waits = chooses(made) and not chosen
    told = with_settings(made, nested(chosen)) if chosen else made
    known = recipe_settings(made.task)
    every = {key: _plain(value) for key, value in flatten(recipe_values(told)).items()}
    stated = {key: "recipe" for key in flatten(_written(recipe)) if key in every}
    stated |= dict.fromkeys(chosen, "chosen") | dict.fromkeys(flat, "you")
    if waits:
        stated = {key: by for key, by in stated.items() if by == "you" or not known[key].chosen}
    return {
        **found,
        "words": [word(key, value) for key, value in flat.items()],
        "name": name,
        "task": made.task,
        "values": every,
        "stated": stated,
        "waits": waits,
        "toml": toml_of({key: every[key] for key in known if key in stated and key in every}, made.task),
        "out": made.out,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def toml_of(values: Mapping[str, Any], task: str) -> str:
    """The settings that somebody has stated, as a recipe file."""
    found: dict[str, Any] = {"task": task}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        if dot:
            found.setdefault(section, {})[name] = value
        else:
            found[key] = value
    return to_toml(found)


def flatten(values: Mapping[str, Any]) -> Values:
    """Nested settings by their dotted keys; tables with a dot in their path stay values."""
    found: Values = {}
    for key, value in values.items():
        found |= {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, Mapping) else {key: value}
    return found


def flat_words(words: Sequence[str]) -> Values:
    """Words by their keys, the last of each; of several kinds of budget the last."""
    found: Values = {}
    for each in words:
        for key, value in flatten(current_settings(parse_overrides([setting_word(each)]), note=False)).items():
            found.pop(key, None)
            if key.removeprefix("train.") in BUDGET:
                found = {old: v for old, v in found.items() if old.removeprefix("train.") not in BUDGET}
            found[key] = value
    return found


def command(recipe: str, words: Sequence[str]) -> str:
    return shlex.join(["headway", "train", recipe, *words])


def with_value(recipe: str, words: Sequence[str], key: str, text: str | None) -> list[str]:
    """The words after an edit of a field; None takes the setting back."""
    kept = [each for each in words if each.partition("=")[0] != key]
    flat = flat_words(kept if text is None else [*kept, word(key, _typed(recipe, words, key, text))])
    return [word(each, value) for each, value in flat.items()]


def _typed(recipe: str, words: Sequence[str], key: str, text: str) -> Any:
    """What somebody typed into a field, as the setting's type wants it: text needs no quotes."""
    known: dict[str, Setting] = {}
    with suppress(HeadwayError):
        known = recipe_settings(_task(recipe, words))
    setting = known.get(key)
    if setting is not None and (str in options(setting.hint) or text in setting.choices):
        return text
    if setting is not None and tuple(key.rpartition(".")[::2]) in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    return flatten(parse_overrides([f"{key}={text}"]))[key]


def _task(recipe: str, words: Sequence[str]) -> str:
    """The task that a recipe is for, whatever else is wrong with the words."""
    given = flat_words(words).get("task")
    return given if isinstance(given, str) else load_recipe(recipe)[1].task


def from_command(line: str) -> tuple[str, list[str]]:
    """The recipe and the words of a command line that somebody typed or pasted."""
    try:
        words = shlex.split(PROGRAM.sub("", line.replace("\\\n", " ").strip(), count=1))
    except ValueError as error:
        raise UsageError("U001", f"the command line is not complete: {error}", "close the quotes") from None
    if option := next((each for each in words if each.startswith("-")), ""):
        hint = "a run is resumed on its own page" if option == "--resume" else "leave it out"
        raise UsageError("U001", f"{option[:60]} is no setting of a new run", hint)
    if not words or "=" in words[0]:
        some = ", ".join(recipe_names()[:6])
        raise UsageError("U001", "the command line names no recipe", f"headway train RECIPE key=value …: {some} …")
    return words[0], words[1:]


def from_toml(recipe: str, words: Sequence[str], before: str, after: str) -> list[str]:
    """The words after an edit of the TOML: what was changed or added, without what was taken out."""
    old, new = flatten(parsed(before)), flatten(parsed(after))
    flat = flat_words(words)
    for key, value in new.items():
        if key not in old or old[key] != value or type(old[key]) is not type(value):
            if isinstance(value, Mapping):
                raise ConfigError("C002", f"{key} should be a value, not a table{line_of(after, key)}")
            flat |= {key: value}
    base = load_recipe(recipe, words)[1]
    known, free = recipe_settings(base.task), chooses(base)
    for key in old.keys() - new.keys():
        flat.pop(key, None)
        if free and key in known and known[key].chosen:
            continue  # it is chosen anew
        if key in flatten(_written(recipe)) and not _replaced(key, new):
            default = known[key].default if key in known else None
            if default is None:
                raise ConfigError(
                    "C004", f"the recipe {recipe} states {key}: it cannot be left out", "change its value"
                )
            flat[key] = default
    return [word(key, value) for key, value in flat.items()]


def _replaced(key: str, new: Mapping[str, Any]) -> bool:
    """Whether another kind of budget stands for this one."""
    name = key.removeprefix("train.")
    return name in BUDGET and any(f"train.{other}" in new for other in BUDGET)


def parsed(text: str) -> dict[str, Any]:
    """TOML that somebody typed."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        hint = "texts need quotes, and each setting a line"
        raise ConfigError("C001", f"not valid TOML: {error}", hint) from None


def _written(recipe: str) -> dict[str, Any]:
    """The settings that a recipe states itself."""
    path = Path(recipe)
    if path.suffix:
        return read_toml(path)[0] if path.suffix == ".toml" and path.exists() else {}
    return recipe_facts(_starter(recipe)).values


def _starter(name: str) -> str:
    """The recipe of a task by the task's name."""
    return get_task(name).starter or name if name in task_names() else name


def placed(error: HeadwayError, words: Sequence[str], toml: str) -> dict[str, Any]:
    """An error with the setting that it is about, and the line of that setting."""
    facts: dict[str, Any] = described(error)[1]
    if error.code == "C001" and (found := PLACE.search(error.message)):
        return {**facts, "key": "", "line": int(found[1] or toml.count("\n") + 1)}
    key = _key(error.message, words)
    line = re.search(r"\d+", line_of(toml, key)) if toml and key else None
    return {**facts, "key": key, "line": int(line[0]) if line else None}


def _key(message: str, words: Sequence[str]) -> str:
    """The setting that a message names first; a word of the user comes before others."""
    if found := UNKNOWN.search(message):
        return found[1]
    named = re.findall(r"\b[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?\b", message)
    typed = {each.partition("=")[0] for each in words}
    known = recipe_settings()
    return next((each for each in named if each in typed), next((each for each in named if each in known), ""))
