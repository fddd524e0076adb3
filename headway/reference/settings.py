"""Every setting of a recipe and of generation: type, default, range, meaning, papers, tasks. No torch here.

Nothing is written down twice. Types and defaults are those of the dataclasses, meanings are the docstrings of their
fields, and ranges are recorded while the dataclasses check their own defaults.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from headway.config.generation import Beam, Sampling
from headway.config.ranges import Found, Range, recorded_ranges
from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.toml import key_of, type_name
from headway.tasks.recipe import SETTINGS, Recipe
from headway.tasks.registry import tasks

SHARED = {"data": DataConfig, "model": ShapeConfig, "train": TrainConfig}
"""The sections that all tasks share."""
GENERATION = {"sampling": Sampling, "beam": Beam}
"""Settings of `headway run`, which are typed without a section: temperature=0.7."""
NETWORKS = ("model.kind", "model.attention", "model.bidirectional", "model.kernel")
"""Settings of networks before the transformer, for tasks that can train them."""
LISTS = {
    tuple[str, ...]: "a list of texts",
    tuple[int, ...]: "a list of whole numbers",
    tuple[float, ...]: "a list of numbers",
}
PAPER = re.compile(r"[A-Z][\w-]+(?: et al\.| & [A-Z][\w-]+)? (?:19|20)\d\d")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting."""

    key: str
    """As it is typed: train.lr; settings of generation have no section: temperature."""
    section: str
    """data, model, train, the name of a task, sampling or beam; empty at the top level of a recipe."""
    type: str
    """In words: "a whole number"."""
    hint: Any
    """The type as Python has it."""
    default: Any
    """As a plain value; None: unset, and the meaning says what then happens."""
    choices: tuple[Any, ...] = ()
    range: Range | None = None
    doc: str = ""
    tasks: tuple[str, ...] = ()
    """Tasks that have the setting."""
    verbs: tuple[str, ...] = ("train", "compare")
    """Verbs that take it as key=value."""
    resumable: bool = False
    """Whether a resumed run may change it."""

    @property
    def name(self) -> str:
        """The key without its section."""
        return self.key.rpartition(".")[2]

    @property
    def papers(self) -> tuple[str, ...]:
        """The papers that the meaning names, as "Su et al. 2021"."""
        return tuple(dict.fromkeys(PAPER.findall(self.doc)))

    @property
    def values(self) -> str:
        """What it may be, in words: its choices, or its type and range."""
        if self.choices:
            return ", ".join(shown(value) for value in self.choices)
        return self.type if self.range is None else f"{self.type}, {self.range}"

    def to_dict(self) -> dict[str, Any]:
        """The setting as JSON has it."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "hint"}
        return {**plain, "range": None if self.range is None else str(self.range), "papers": self.papers}


@dataclass(frozen=True)
class Section:
    """A section of a recipe, or the settings of generation."""

    name: str
    doc: str
    settings: tuple[Setting, ...]


def shown(value: Any) -> str:
    """A value as it is typed after `key=`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(shown, value)) if all(isinstance(v, str) for v in value) else str(list(value))
    return str(value) if value != "" else '""'


@cache
def sections() -> Mapping[str, Section]:
    """Every section by name, in the order of a recipe; the top level has an empty name."""
    each = list(tasks())
    names = tuple(task.name for task in each)
    with recorded_ranges() as ranges:  # dataclasses check their defaults, and these checks name the ranges
        recipes = [Recipe(task=name) for name in names]
        for cls in GENERATION.values():
            cls()
    top = _settings("", Recipe, Recipe(), ranges, names)
    found = [Section("", "", tuple(s for s in top if s.key not in (*SHARED, SETTINGS)))]
    for name, cls in SHARED.items():
        able = tuple(task.name for task in each if task.networks)
        settings = _settings(name, cls, getattr(recipes[0], name), ranges, names)
        settings = [dataclasses.replace(s, tasks=able) if s.key in NETWORKS else s for s in settings]
        if cls is TrainConfig:  # one budget must be given: none of the three is a default
            settings = [dataclasses.replace(s, default=None) if s.name == "steps" else s for s in settings]
        found.append(Section(name, _first_line(cls), tuple(settings)))
    for task, recipe in zip(each, recipes, strict=True):
        own = _settings(task.name, task.Settings, recipe.settings, ranges, (task.name,))
        found.append(Section(task.name, f"Settings of the task {task.name}: {task.title}.", tuple(own)))
    common = {field.name for field in dataclasses.fields(Sampling)}
    for name, cls in GENERATION.items():
        able = tuple(t.name for t in each if t.generates or (cls is Beam and "beam" in t.options))
        own = [
            dataclasses.replace(setting, key=setting.name, verbs=("run",), resumable=False)
            for setting in _settings(name, cls, cls(), ranges, able)
            if cls is Sampling or setting.name not in common
        ]
        found.append(Section(name, _first_line(cls), tuple(own)))
    return {section.name: section for section in found}


def settings() -> Iterator[Setting]:
    """Every setting; what sampling and beam search share is among the settings of sampling."""
    for section in sections().values():
        yield from section.settings


def recipe_settings(task: str = "") -> dict[str, Setting]:
    """Settings of a recipe by key; with a task, without the sections of other tasks."""
    found = (s for name, s in ((s.section, s) for s in settings()) if name not in GENERATION)
    return {s.key: s for s in found if not task or s.section in ("", task, *SHARED)}


def _settings(section: str, cls: type, default: Any, ranges: Found, tasks: tuple[str, ...]) -> list[Setting]:
    hints, docs = typing.get_type_hints(cls), attribute_docs(cls)
    free = getattr(cls, "free_on_resume", frozenset())
    found = []
    for field in dataclasses.fields(cls):
        key, hint = key_of(field.name), hints[field.name]
        value = getattr(default, field.name)
        found.append(
            Setting(
                key=f"{section}.{key}" if section else key,
                section=section,
                type=type_words(hint),
                hint=hint,
                default=list(value) if isinstance(value, tuple) else value,
                choices=choices(hint),
                range=ranges.get((cls, field.name)),
                doc=docs.get(field.name, ""),
                tasks=tasks,
                resumable=key in free,
            )
        )
    return found


def options(hint: Any) -> list[Any]:
    """The types of a union, without None."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return [part for part in parts if part is not type(None)]


def choices(hint: Any) -> tuple[Any, ...]:
    """The values that a type allows, where it lists them: literals and booleans; empty if there are others."""
    found: list[Any] = []
    for part in options(hint):
        if part is bool:
            found += [True, False]
        elif typing.get_origin(part) is Literal:
            found += typing.get_args(part)
        else:
            return ()
    return tuple(found)


def type_words(hint: Any) -> str:
    """A type in words."""
    if choices(hint):
        return "one of " + ", ".join(shown(value) for value in choices(hint))
    return " or ".join(LISTS.get(part, type_name(part)) for part in options(hint))


@cache
def attribute_docs(cls: type) -> Mapping[str, str]:
    """Field → the string below it in the source, on one line. A class without source has none."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for name, doc in _class_docs(base.__module__, inspect.getsourcefile(base) if base is not object else None):
            if name.startswith(f"{base.__qualname__}."):
                found[name.rpartition(".")[2]] = doc
    return found


@cache
def _class_docs(module: str, file: str | None) -> list[tuple[str, str]]:
    """("Class.field", doc) of every documented field of the classes of a module."""
    if file is None or not Path(file).is_file():
        return []
    found = []
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else []
        for field, below in pairwise(inside):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(inspect.cleandoc(str(below.value.value)).split())
                found.append((f"{node.name}.{field.target.id}", text))  # type: ignore[union-attr]
    return found


def _first_line(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "").split("\n")[0]
