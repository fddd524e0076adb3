"""Every setting of a recipe and of generation: type, default, range, meaning, papers, tasks. No torch here.

Nothing is written down twice. Types and defaults are those of the dataclasses, meanings are the docstrings of their
fields, and ranges are recorded while the dataclasses check their own defaults.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
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
from headway.config.toml import key_of, type_name
from headway.tasks.recipe import PRIVATE, SECTIONS, Recipe
from headway.tasks.registry import task_names, tasks

GENERATION: dict[str, type] = {"sampling": Sampling, "beam": Beam}
"""Settings of `headway run`, which are typed without a section: temperature=0.7."""
NETWORKS = ("model.kind", "model.attention", "model.bidirectional", "model.kernel")
"""Settings of networks before the transformer, for tasks that can train them."""
CHOSEN = {
    "data": ("length", "vocab", "size"),
    "model": ("depth", "width", "heads", "norm_at", "dropout", "patch"),
    "train": (
        *("lr", "schedule", "warmup", "final_lr", "weight_decay", "betas", "layer_decay", "keep_best"),
        *("epochs", "minutes", "batch", "eval_every", "sample_every", "save_every"),
    ),
}
"""Settings that headway/tasks/defaults chooses where nobody has given them."""
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
    verbs: tuple[str, ...] = ("train", "compare")
    """Verbs that take it as key=value."""
    resumable: bool = False
    """Whether a resumed run may change it."""

    @property
    def name(self) -> str:
        """The key without its section."""
        return self.key.rpartition(".")[2]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that have the setting."""
        if self.section in task_names():
            return (self.section,)
        if self.key in NETWORKS:
            return tuple(task.name for task in tasks() if task.networks)
        if self.section in GENERATION:
            return tuple(t.name for t in tasks() if t.generates or (self.section == "beam" and "beam" in t.options))
        return tuple(task_names())

    @property
    def chosen(self) -> bool:
        """Whether it is chosen by model and data, if it is not given, for model.from or for data of the user."""
        return self.name in CHOSEN.get(self.section, ())

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
        return {**plain, "range": None if self.range is None else str(self.range)} | {
            "papers": self.papers,
            "tasks": self.tasks,
            "chosen": self.chosen,
        }


@dataclass(frozen=True)
class Section:
    """A section of a recipe, or the settings of generation."""

    name: str
    doc: str
    settings: tuple[Setting, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "doc": self.doc, "settings": [each.to_dict() for each in self.settings]}


def shown(value: Any) -> str:
    """A value as it is typed after `key=`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        texts = value and all(isinstance(each, str) for each in value)
        return ",".join(value) if texts else json.dumps(value, separators=(",", ":"))
    return str(value) if value != "" else '""'


def sections() -> dict[str, Section]:
    """Every section by name, in the order of a recipe; the top level has an empty name."""
    return {name: section(name) for name in ("", *SECTIONS, *task_names(), *GENERATION)}


@cache
def section(name: str) -> Section:
    """A section by name. Only the task of that name is imported."""
    with recorded_ranges() as ranges:  # dataclasses check their defaults, and these checks name the ranges
        if name in GENERATION:
            default = GENERATION[name]()
        else:
            recipe = Recipe(task=name) if name in task_names() else Recipe()
            default = getattr(recipe, name) if name in SECTIONS else recipe.settings if name else recipe
    cls = type(default)
    found = [_setting(name, default, field, ranges) for field in dataclasses.fields(cls)]
    if not name:
        found = [each for each in found if each.key not in (*SECTIONS, *PRIVATE)]
    if cls is Beam:  # what it shares with sampling stands there
        found = [each for each in found if each.key not in {field.name for field in dataclasses.fields(Sampling)}]
    doc = f"Settings of the task {name}." if name in task_names() else inspect.cleandoc(cls.__doc__ or "")
    return Section(name, doc.split("\n")[0], tuple(found))


def settings() -> Iterator[Setting]:
    """Every setting; what sampling and beam search share is among the settings of sampling."""
    for each in sections().values():
        yield from each.settings


def recipe_settings(*tasks: str) -> dict[str, Setting]:
    """Settings of recipes by key; with tasks, without the sections of other tasks."""
    names = ("", *SECTIONS, *(tasks or task_names()))
    return {each.key: each for name in names for each in section(name).settings}


def _setting(where: str, default: Any, field: dataclasses.Field[Any], ranges: Found) -> Setting:
    cls: Any = type(default)
    key, typed = key_of(field.name), where if where not in GENERATION else ""
    value, hint = getattr(default, field.name), _hints(cls)[field.name]
    if (where, key) == ("train", "steps"):  # its 1,000 steps are the default of a recipe without this section
        value = None
    return Setting(
        key=f"{typed}.{key}" if typed else key,
        section=where,
        type=type_words(hint),
        hint=hint,
        default=list(value) if isinstance(value, tuple) else value,
        choices=choices(hint) if where or key != "task" else tuple(task_names()),
        range=ranges.get((cls, field.name)),
        doc=attribute_docs(cls).get(field.name, ""),
        verbs=("run",) if where in GENERATION else ("train", "compare"),
        resumable=where not in GENERATION and key in getattr(cls, "free_on_resume", ()),
    )


_hints = cache(typing.get_type_hints)


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
        if not isinstance(node, ast.ClassDef):
            continue
        for field, below in pairwise(node.body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(inspect.cleandoc(str(below.value.value)).split())
                found.append((f"{node.name}.{field.target.id}", text))
    return found
