"""Shell completion of recipes, runs, models, keys and values; it answers a key press, so nothing heavy is imported."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headway.config.recipe import RUNS
from headway.errors import CATALOGUE, HeadwayError

if TYPE_CHECKING:
    from headway.reference.settings import Setting

PATHS = ("data.train", "data.valid", "data.test")
"""Settings that are files."""


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes by name, tasks, and recipe files."""
    from headway.config.files import SUFFIXES
    from headway.tasks.recipe import recipe_names
    from headway.tasks.registry import task_names

    return _starting(incomplete, [*recipe_names(), *task_names(), *_files(incomplete, SUFFIXES)])


def complete_comparison(incomplete: str) -> list[str]:
    """The comparisons that come with headway, and recipes."""
    from headway.runs.shipped import shipped_names

    return [*_starting(incomplete, shipped_names()), *complete_recipe(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Runs in the usual folder, the newest first, and `last`."""
    return _starting(incomplete, ["last", *_runs()])


def complete_model(incomplete: str) -> list[str]:
    """Runs, presets, and folders and files that hold a model."""
    from headway.config.presets import PRESETS

    return _starting(incomplete, ["last", *_runs(), *PRESETS, "smollm2", *_model_folders(incomplete)])


def complete_recipe_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """key= and key=value words for the recipe that is typed before them."""
    from headway.reference.settings import recipe_settings
    from headway.tasks.recipe import load_recipe

    try:
        recipe = load_recipe(str(ctx.params.get("recipe") or ctx.params.get("model") or "lm"))[1]
    except HeadwayError:
        return []
    settings = recipe_settings(recipe.task)
    return _settings(incomplete, settings.values())


def complete_generation_settings(incomplete: str) -> list[str]:
    """Settings of sampling and beam search."""
    from headway.reference.settings import section

    settings = [each for name in ("sampling", "beam") for each in section(name).settings]
    return _settings(incomplete, settings)


def complete_explained(incomplete: str) -> list[str]:
    """Whatever `headway explain` explains; keys of one section at a time, for there are many."""
    from headway.reference.settings import GENERATION, section
    from headway.tasks.recipe import SECTIONS, recipe_names
    from headway.tasks.registry import task_names

    head = incomplete.partition(".")[0] if "." in incomplete else ""
    names = [*SECTIONS, *task_names()]
    keys = [each.key for each in section(head).settings] if head in ("", *names) else []
    generation = [each.key for name in GENERATION for each in section(name).settings]
    dotted = [] if head else [f"{name}." for name in names]
    found = [*SECTIONS, *GENERATION, *task_names(), *recipe_names(), *keys, *generation, *dotted, "exit"]
    return _starting(incomplete, [*found, *(CATALOGUE if incomplete else ())])


# --- words --------------------------------------------------------------------------------------


def _settings(incomplete: str, settings: Iterable[Setting]) -> list[str]:
    """`key=` for the beginning of a key, `key=value` after the =. bash takes = for the end of a word."""
    from headway.reference.settings import shown

    known = {each.key: [shown(value) for value in each.choices] for each in settings}
    key, value, split = _typed(incomplete)
    if value is None:
        found = [each for each in known if each.startswith(key)]
        if len(found) == 1 and known[found[0]]:
            return [f"{found[0]}={each}" for each in known[found[0]]]
        return [f"{each}=" for each in found]
    values = known.get(key, []) or (_paths(value) if key in (*PATHS, "model.from") else [])
    return [each if split else f"{key}={each}" for each in _starting(value, values)]


def _typed(incomplete: str) -> tuple[str, str | None, bool]:
    """The key, the value or None before the =, and whether the shell has split the word at the =."""
    words, place = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    before = words[: int(place)] if place.isdecimal() else []
    if incomplete in ("", "=") and len(words) > len(before) and words[len(before)] == "=" and before:
        return before[-1], "", True
    if len(before) > 1 and before[-1] == "=":
        return before[-2], incomplete, True
    key, equals, value = incomplete.partition("=")
    return key, value if equals else None, False


def _starting(incomplete: str, words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word for word in words if word.startswith(incomplete)))


# --- files --------------------------------------------------------------------------------------


def _runs() -> list[str]:
    try:
        inside = [each for each in Path(RUNS).iterdir() if (each / "run").is_dir() and ".partial-" not in each.name]
        return [each.name for each in sorted(inside, key=lambda each: each.stat().st_mtime, reverse=True)]
    except OSError:
        return []


def _model_folders(incomplete: str) -> Iterator[str]:
    for each in _paths(incomplete):
        if each.endswith(".gguf") or os.path.isfile(os.path.join(each, "config.json")):
            yield each.rstrip("/")


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    return [each for each in _paths(incomplete) if each.endswith((*suffixes, "/"))] if incomplete else []


def _paths(incomplete: str) -> list[str]:
    """Paths that begin like this; folders end in /."""
    folder, begin = os.path.split(incomplete)
    try:
        with os.scandir(folder or ".") as entries:
            names = [(each.name, each.is_dir()) for each in entries if each.name.startswith(begin)]
    except OSError:
        return []
    visible = [(name, is_dir) for name, is_dir in names if begin.startswith(".") or not name.startswith(".")]
    return sorted(os.path.join(folder, name) + "/" * is_dir for name, is_dir in visible)
