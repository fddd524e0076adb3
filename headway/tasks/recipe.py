"""A recipe: everything about a training run, read from TOML and `key=value` words. No torch here.

A recipe has the sections that all tasks share (headway/config/recipe.py) and the section of its task, which has the
task's name in files and is `settings` in Python.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from headway.config.aliases import ALIASES, current_keys
from headway.config.files import SUFFIXES, read_settings
from headway.config.keys import check_keys, dotted_keys
from headway.config.ranges import conflict
from headway.config.recipe import RECURRENT, RUNNING, RUNS, DataConfig, ShapeConfig, TrainConfig
from headway.config.toml import build, line_of, merge, parse_overrides, read_toml, to_dict
from headway.errors import ConfigError, NotFoundError, nearest, short
from headway.tasks.base import Task
from headway.tasks.registry import BUILT_IN, get_task, task_names, tasks

RECIPES = Path(__file__).parent.parent / "recipes"
LISTS = (("model", "lora_targets"), ("train", "sinks"))
"""Settings that are lists of names."""
CHOSEN, TOKENS = ("from", "lora", "lora_targets", "freeze"), ("tokenizer", "vocab", "lower")
"""Settings that apply to a pretrained model; settings of a new vocabulary."""
SECTIONS = {"data": DataConfig, "model": ShapeConfig, "train": TrainConfig}
"""The sections that all tasks share."""
SETTINGS, GIVEN, STARTER = "settings", "given", "starter"
PRIVATE = (SETTINGS, GIVEN)
"""Fields of a recipe that no file has."""
BUDGET = frozenset({"steps", "minutes", "epochs"})
"""Settings of `train` of which a recipe has one."""

PLAIN = {"data": "data.train", "model": "model.from"}
"""A section that was given a plain value → the setting that is meant: data=reviews.csv, model=org/name."""


@dataclass(frozen=True)
class Given:
    """Which settings of a recipe somebody wrote; headway/tasks/defaults chooses the others before a run starts."""

    keys: frozenset[str]
    """Dotted keys of the recipe file and of the words on top. Of a starter only those of the words."""
    starter: bool
    """Whether the file is a starter of headway: its settings are for its made-up data, not for data of the user."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about a run."""

    task: str = "lm"
    """What the model is trained for: the name of a task."""
    seed: int = 1337
    """Initial weights, order of the data and dropout follow from it: the same seed gives the same run."""
    out: str = RUNS
    """The folder that gets a folder for the run."""
    gpus: int = 1
    """Processes, one per GPU; torchrun starts them if there is more than one."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ShapeConfig = field(default_factory=ShapeConfig)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(steps=1000))
    settings: Any = None
    """The section of the task, its `Settings`; None stands for the defaults."""
    given: Given | None = field(default=None, compare=False, repr=False)
    """What was written, for `choose`; None: nothing is left to choose. Not part of a recipe file."""

    free_on_resume: ClassVar = frozenset({"out", "gpus"})

    def __post_init__(self) -> None:
        task = get_task(self.task)
        if self.settings is None:
            object.__setattr__(self, SETTINGS, task.Settings())
        elif type(self.settings) is not task.Settings:
            raise ConfigError("C002", f"the settings of task {self.task} should be its own {task.Settings.__name__}")
        kind, attention = self.model.kind, self.model.attention
        if kind in ("transformer", "conv", "ngram") and (attention != "none" or self.model.bidirectional):
            what = f"model.attention = {attention}" if attention != "none" else "model.bidirectional = true"
            raise ConfigError("C004", f"{what} is for recurrent networks, not for model.kind = {kind}")
        self._check_recurrent(task)
        if kind == "transformer":
            return
        if not task.networks or (kind == "ngram" and not task.generates):
            able = [task.name for task in tasks() if task.networks and (kind != "ngram" or task.generates)]
            which = f"task{'s' * (len(able) > 1)} {' and '.join(able)}"
            raise ConfigError("C004", f"model.kind = {kind} is for the {which}, not {self.task}")
        if kind == "ngram" and (self.model.from_ or self.model.lora):
            what = f"model.from = {self.model.from_}" if self.model.from_ else f"model.lora = {self.model.lora}"
            why = f"model.kind = ngram conflicts with {what}: an n-gram model is counted anew"
            raise ConfigError("C004", why, "leave one of them out")
        if task.generates and kind != "ngram" and self.data.rows not in RUNNING:
            why = f'model.kind = {kind} needs data.rows = "stream", not "{self.data.rows}"'
            raise ConfigError("C004", why)
        if self.gpus > 1:
            raise ConfigError("C004", f"model.kind = {kind} trains in one process, not gpus = {self.gpus}")

    def _check_recurrent(self, task: Task) -> None:
        """Refuse what only recurrent language models have, for other models."""
        kind, own = self.model.kind, self.model.recurrent_settings
        if own and not (kind in RECURRENT and task.carries):
            whose = f"task {self.task}" if kind in RECURRENT else f"model.kind = {kind}"
            what = "only recurrent language models have it"
            raise conflict(own[0], whose, f"{what} (model.kind = {', '.join(RECURRENT)})")
        if self.data.rows != "carry":
            return
        carry = 'data.rows = "carry"'
        if not task.carries:
            raise conflict(carry, f"task {self.task}", "it is for language models that read running text")
        if kind not in RECURRENT and not self.model.from_:  # of a pretrained model, its config tells
            raise no_state(f"model.kind = {kind}")
        if self.gpus > 1:
            raise conflict(carry, f"gpus = {self.gpus}", "recurrent networks train in one process")


def no_state(what: str) -> ConfigError:
    """The error about a model that has no state to carry."""
    hint = f'set data.rows = "stream", or model.kind to one of {", ".join(RECURRENT)}'
    why = f'data.rows = "carry" conflicts with {what}: it has no state that one batch could hand to the next'
    return ConfigError("C004", why, hint)


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    """Nested plain values as files have them: the task's section under its own name."""
    values = to_dict(replace(recipe, given=None))
    section = values.pop(SETTINGS)
    values.pop(GIVEN, None)
    return values | ({recipe.task: section} if section else {})


def read_recipe(values: Mapping[str, Any], source: str = "") -> Recipe:
    """The recipe that a run has recorded. Runs of older versions recorded every task's section, under older names."""
    values = _own_sections(values, values.get("task", Recipe.task))
    return _build(current_settings(values, note=False), source)


def _own_sections(values: Mapping[str, Any], task: object) -> dict[str, Any]:
    """A recipe file without the sections of other tasks: older versions wrote every task's section into a run."""
    return {key: value for key, value in values.items() if key == task or key not in task_names()}


def _build(values: Mapping[str, Any], source: str = "") -> Recipe:
    name = values.get("task", Recipe.task)
    if not isinstance(name, str):
        raise ConfigError("C002", f"task = {name!r} should be text")
    task, values = get_task(name), dict(values)
    section = values.pop(name, {})
    for other in (key for key in values if key in task_names()):
        raise ConfigError("C004", f"{other} is the section of the task {other}, and this recipe is for {name}")
    if STARTER in values:
        hint = "it marks headway's own starters; without the line, the file's settings are taken as they are"
        raise ConfigError("C014", f"unknown setting {STARTER}", hint)
    for private in PRIVATE:
        if private in values:
            hint = f"the settings of a task are in its section: [{name}]"
            raise ConfigError("C014", f"unknown setting {private}", hint)
    if not isinstance(section, Mapping):
        raise ConfigError("C002", f"{name} = {section!r} should be a table", f"as {name}.KEY=…")
    check_keys({**values, name: section}, recipe_keys(name), lambda key: line_of(source, key))
    settings: Any = build(task.Settings, section, name, source)
    return build(Recipe, {**values, SETTINGS: settings}, source=source)


def recipe_keys(task: str) -> list[str]:
    """The keys that a recipe for a task takes."""
    top = [key for key in dotted_keys(Recipe) if key not in (*SECTIONS, *PRIVATE)]
    own = {**SECTIONS, task: get_task(task).Settings}
    return [*top, *(key for name, cls in own.items() for key in dotted_keys(cls, name))]


def load_run_recipe(folder: Path) -> Recipe:
    """The recipe of a run, from its folder."""
    path = folder / "run" / "recipe.toml"
    if not path.exists():
        raise NotFoundError("F001", f"{folder} is not a run: it has no run/recipe.toml")
    values, text = read_toml(path)
    return read_recipe(values, source=text)


def current_settings(values: Mapping[str, Any], note: bool = True) -> dict[str, Any]:
    """Nested settings under their current names; `note` prints each old name once."""
    sections = [name for name in values if name in task_names()]
    own = {f"{task}.{old}": f"{task}.{new}" for task in sections for old, new in get_task(task).renamed.items()}
    return current_keys(values, {**ALIASES, **own}, note)


def recipe_names() -> list[str]:
    """Recipes that `headway train` knows by name: those of headway, and one for each task of another package."""
    own = {path.stem for path in RECIPES.glob("*.toml")}
    return sorted(own | (set(task_names()) - BUILT_IN.keys()))


def load_recipe(what: str, overrides: Sequence[str] = ()) -> tuple[str, Recipe]:
    """A recipe by name or path, with `key=value` words on top; also the name that its runs get."""
    name = get_task(what).starter or what if what in task_names() else what
    path = Path(what) if Path(what).suffix in SUFFIXES else RECIPES / f"{name}.toml"
    if path.exists():
        data, text = read_settings(path)
    elif what in task_names() and (text := get_task(what).recipe):
        data = {**tomllib.loads(text), STARTER: True}
    else:
        names = recipe_names()
        if Path(what).suffix in SUFFIXES:
            raise NotFoundError("F001", f"no such file: {what}", "headway recipes lists recipes by name")
        if Path(what).is_file():
            raise ConfigError("C001", f"{what} is no recipe file", f"recipes end in {', '.join(SUFFIXES)}")
        raise NotFoundError("F001", f"no recipe {what}{nearest(what, names)}", f"there are: {', '.join(names)}")
    over = current_settings(_listed(parse_overrides([setting_word(word) for word in overrides])))
    data = current_settings(_own_sections(data, over.get("task", data.get("task", Recipe.task))))
    ours = path.parent == RECIPES
    starter = ours and data.pop(STARTER, False) is True
    _check_base(over, merge(data, over))
    recipe = _build(_with(data, over), text if not over or _wrong(data) else "")
    if ours and not starter:  # tuned by hand, and its scores are documented
        return path.stem, recipe
    return path.stem, replace(recipe, given=Given(_keys(over) if starter else _keys(data) | _keys(over), starter))


def setting_word(word: str) -> str:
    """A word as `key=value`; a section with a plain value is its usual setting. Anything else is an error."""
    key, equals, value = word.partition("=")
    if not equals:
        like_data = Path(word).suffix or Path(word).exists()
        hint = f"for data of yours: {shlex.quote(f'data.train={word}')}" if like_data else "such as train.lr=1e-3"
        raise ConfigError("C001", f"{short(word)} is not key=value", hint)
    return f"{PLAIN[key]}={value}" if key in PLAIN and not value.startswith("{") else word


def _keys(values: Mapping[str, Any]) -> frozenset[str]:
    """Dotted keys of nested settings."""
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    inside = {f"{name}.{key}" for name, table in tables.items() for key in table}
    return frozenset(inside | (values.keys() - tables.keys()))


def _listed(over: dict[str, Any]) -> dict[str, Any]:
    """Names separated by commas as lists: brackets and quotes would be the shell's."""
    for section, name in LISTS:
        inside = over.get(section)
        if isinstance(inside, dict) and isinstance(inside.get(name), str):
            inside[name] = inside[name].split(",")
    return over


def _check_base(over: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Refuse words that model.from decides. A file may have them, for the case without a pretrained model."""
    model, data = (over[name] if isinstance(over.get(name), Mapping) else {} for name in ("model", "data"))
    base = merged["model"].get("from") if isinstance(merged.get("model"), Mapping) else ""
    if not base:
        if type(model.get("freeze")) is int and model["freeze"] > 0:
            raise ConfigError("C004", f"model.freeze = {model['freeze']} needs a pretrained model: set model.from")
        return
    keys = (f"{section}.{name}" for section, values in (("model", model), ("data", data)) for name in values)
    decided = [key for key in keys if is_of_new_model(key)]
    if decided:
        whose = "vocabulary" if decided[0].startswith("data.") else "shape"
        raise ConfigError("C004", f"{decided[0]} is for a new model: {base} has a {whose} of its own (model.from)")


def is_of_new_model(key: str) -> bool:
    """Whether a setting is for a new model alone: a pretrained one has a shape and a vocabulary of its own."""
    section, _, name = key.rpartition(".")
    return (section == "model" and name not in CHOSEN) or (section == "data" and name in TOKENS)


def _wrong(data: Mapping[str, Any]) -> bool:
    """Whether the file is wrong without the words on top: only then has a mistake a line number."""
    try:
        _build(data)
    except ConfigError:
        return True
    return False


def with_overrides(recipe: Recipe, words: Sequence[str]) -> Recipe:
    """A recipe with `key=value` words on top."""
    return with_settings(recipe, _listed(parse_overrides(words)))


def with_settings(recipe: Recipe, over: Mapping[str, Any]) -> Recipe:
    """A recipe with nested values on top."""
    if not over:
        return recipe
    over, given = current_settings(over), recipe.given
    given = given and replace(given, keys=given.keys | _keys(over))
    return replace(_build(_with(recipe_values(recipe), over)), given=given)


def _with(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides last; a budget of one kind replaces a budget of another kind."""
    merged = merge(data, over)
    given = over.get("train", {})
    if isinstance(given, Mapping) and given.keys() & BUDGET and isinstance(merged.get("train"), dict):
        for name in BUDGET - given.keys():
            merged["train"].pop(name, None)
    return merged


def same_recipe(kept: Recipe, given: Recipe) -> bool:
    """Whether a run's recipe is the given one, apart from settings that the run found in its data."""
    found = {
        each.name: each.default
        for each in fields(kept.settings)
        if each.metadata.get("from_data") and each.default is not MISSING
    }
    if type(kept.settings) is type(given.settings):
        unset = {name: value for name, value in found.items() if getattr(given.settings, name) == value}
        kept = replace(kept, settings=replace(kept.settings, **unset))
    return kept == given


def batch_size(recipe: Recipe) -> int:
    """As given, or by depth: 256 · depth² tokens per step, since better models profit from larger batches."""
    given, parts = recipe.train.batch, recipe.train.accumulate
    by_depth = max(1, round(256 * recipe.model.depth**2 / recipe.data.length / parts)) * parts
    return given or by_depth
