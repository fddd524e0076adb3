"""Choose the settings of a run that neither its recipe nor the user has given, and say so in one line.

A pretrained model (model.from) is fine-tuned by the rules of `finetuning`. A new model for the user's own data gets a
vocabulary, a length and a size by the rules of `scratch`, if the recipe is a starter; other recipes are taken as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.config.recipe import TrainConfig
from headway.errors import counted
from headway.hub.adapter import is_adapter
from headway.hub.download import resolve
from headway.hub.folder import open_folder, read_tokenizer
from headway.tasks.base import Task
from headway.tasks.defaults.finetuning import finetuning_settings
from headway.tasks.defaults.sample import Sample, take_sample
from headway.tasks.defaults.scratch import SIZE, counted_settings, scratch_settings
from headway.tasks.recipe import BUDGET, Recipe, with_settings
from headway.tasks.registry import get_task

SHOWN = ("steps", "lora", "length", "vocab", "depth", "width", "lr", "epochs", "minutes", "batch", "warmup")
"""Settings that the line shows. The others follow from the kind of training; recipe.toml has them all."""
COUNTING = TrainConfig(steps=1, warmup=0)
BY_GRADIENT = (
    *("steps", "warmup", "accumulate", "optimizer", "ema", "average", "patience", "keep_best", "on_nan", "unfreeze"),
)
"""Settings of `train` that have no meaning for a model that is counted: it gets those of `COUNTING`."""


@dataclass(frozen=True)
class Chosen:
    """A complete recipe, and what was chosen for it."""

    recipe: Recipe
    settings: Mapping[str, Any]
    """Key → value of the settings that were chosen."""
    why: str
    """For what they were chosen; empty if nothing was."""

    def __str__(self) -> str:
        shown = [
            f"{key}={value:g}" for key, value in self.settings.items() if key.rpartition(".")[2] in SHOWN and value
        ]
        return f"{self.why}: {' '.join(shown)}"


def choose(recipe: Recipe) -> Chosen:
    """The recipe with a value for everything that was not given."""
    if recipe.model.kind == "ngram":
        return _counting(recipe)
    given = recipe.given
    complete = Chosen(replace(recipe, given=None), {}, "")
    if given is None or not chooses(recipe):
        return complete
    task = get_task(recipe.task)
    sample = take_sample(task, recipe.data) if recipe.data.train else None
    count = task.count(recipe.data) if recipe.data.train and sample is None else None
    if recipe.model.from_:
        settings, why = _finetuning(recipe, given.keys, sample, count)
    elif count is not None:
        settings = counted_settings(recipe, given.keys, count)
        why = f"a new model for {counted(count, f'{task.learns or task.takes}s')}"
    elif sample is None:
        return complete
    else:
        settings = scratch_settings(recipe, given.keys, sample)
        why = f"a new model for {_described(sample, task)}"
    settings = _left(settings, given.keys)
    return Chosen(replace(with_settings(recipe, nested(settings)), given=None), settings, why) if settings else complete


def chooses(recipe: Recipe) -> bool:
    """Whether model and data decide settings that nobody has given."""
    given = recipe.given
    new = given is not None and given.starter and recipe.data.train and recipe.model.kind == "transformer"
    return given is not None and bool(recipe.model.from_ or new)


def _counting(recipe: Recipe) -> Chosen:
    """An n-gram model is counted, so a run is one step, whatever the recipe says of steps and gradients."""
    settings = {name: getattr(COUNTING, name) for name in BY_GRADIENT}
    chosen = replace(recipe.train, minutes=None, epochs=None, **settings)
    changed = {} if chosen == recipe.train else {f"train.{name}": value for name, value in settings.items()}
    return Chosen(replace(recipe, train=chosen, given=None), changed, "an n-gram model is counted")


def _finetuning(
    recipe: Recipe, keys: frozenset[str], sample: Sample | None, count: int | None
) -> tuple[dict[str, Any], str]:
    folder = resolve(recipe.model.from_)
    if is_adapter(folder):  # its base is only known when it is loaded
        return {}, ""
    base = open_folder(folder).config
    task = get_task(recipe.task)
    tokenizer = read_tokenizer(folder) if task.takes == "text" else None
    settings = finetuning_settings(recipe, keys, base, tokenizer, sample, count)
    kind = task.learns or task.takes
    data = f" on {count:,} {kind}s" if count else "" if sample is None else f" on {_described(sample, task)}"
    return settings, f"fine-tuning {Path(recipe.model.from_).name}{data}"


def _left(settings: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Settings without those that were given, and without those that belong together with one that was given."""
    taken = set(keys)
    pairs = ({"train.batch", "train.batch_tokens"}, {"train.average", "train.keep_best"})
    for together in ({f"train.{name}" for name in BUDGET}, *pairs, set(SIZE)):
        taken |= together if taken & together else set()
    return {key: value for key, value in settings.items() if key not in taken}


def nested(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by their dotted keys as sections."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        found.setdefault(section, {})[name] = value
    return found


def _described(sample: Sample, task: Task) -> str:
    """3,000 examples of about 120 characters; running text by its characters alone."""
    if task.fills_rows:
        return f"{sample.characters:,}{'' if sample.complete else ' or more'} characters of text"
    many = f"{sample.rows:,}{'' if sample.complete else ' or more'} example{'s' * (sample.rows != 1)}"
    return f"{many} of about {sample.characters / max(1, sample.rows):,.0f} characters"
