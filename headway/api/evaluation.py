"""Evaluation of a model on a text, on data of its task, or on questions; with another model beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError, DataError, HeadwayError, NotFoundError, UsageError, counted, nearest
from headway.resources import save_text
from headway.tasks.registry import get_task, task_names

if TYPE_CHECKING:
    from headway.tasks.metrics.bootstrap import Evaluation
    from headway.tasks.recipe import Recipe

Load = Callable[[str], Any]
Say = Callable[..., None]
SETTINGS = ("file", "data", "against", "column", "length", "out", "task")
TEXT_SETTINGS = ("data", "against", "column", "length", "overlap")


@dataclass(frozen=True)
class Measure:
    """One kind of evaluation."""

    name: str
    config: Callable[[dict[str, Any]], Any]
    """Settings of this kind, checked."""
    run: Callable[[Any, Any, Load, Say], dict[str, Any]]
    """What is found, from a bundle and these settings; `Load` loads the model to compare with."""


def check_settings(task: str, settings: Mapping[str, Any]) -> None:
    """Find mistakes in settings before the model is loaded, as far as they do not depend on the model."""
    known = [CHOICES.name, *task_names()]
    if task and task not in known:
        raise ConfigError("C003", f"task = {task} is unknown{nearest(task, known)}", f"one of {', '.join(known)}")
    of_task = {"out", *task_names()} & settings.keys() or isinstance(settings.get("data"), dict)
    if task == CHOICES.name or not (task or of_task):
        (CHOICES if task else TEXT).config(dict(settings))


def evaluate_model(bundle: Any, task: str, settings: Mapping[str, Any], load: Load, say: Say) -> dict[str, Any]:
    """A model on the data that `settings` name; `task` is empty for what the model is for."""
    measure = _measure(task, task or bundle.task)
    config = measure.config({**settings, **({"task": measure.name} if measure.name in task_names() else {})})
    return {"model": bundle.name, **measure.run(bundle, config, load, say)}


def _measure(asked: str, name: str) -> Measure:
    """By the name of a task. A model that generates is scored on a text, unless its task is asked for by name."""
    if name == CHOICES.name:
        return CHOICES
    task = get_task(name)
    scored_on_text = task.generates and (not asked or not task.evaluates)
    return TEXT if scored_on_text else Measure(name, dict, _evaluate_file)


def _text_config(settings: dict[str, Any]) -> dict[str, Any]:
    for key in settings:
        if key not in TEXT_SETTINGS:
            close = nearest(key, (*TEXT_SETTINGS, "task"))
            raise ConfigError("C014", f"unknown setting {key}{close}", "see headway eval -h")
    return settings


def _measure_text(bundle: Any, config: dict[str, Any], load: Load, say: Say) -> dict[str, Any]:
    from headway.checks.perplexity import bits_saved, evaluation_text, evaluation_tokens, measure, score

    spec, settings = evaluation_text(bundle.folder, str(config.get("data", "")))
    names = {"column": "text", "length": "length", "overlap": "overlap"}
    settings = replace(settings, **{ours: config[name] for name, ours in names.items() if name in config})
    losses = measure(bundle.model, evaluation_tokens(spec, settings, bundle.require_tokenizer()), settings)
    result: dict[str, Any] = {"data": spec, **score(losses).as_dict()}
    if "against" in config:
        other = load(config["against"])
        theirs = measure(other.model, evaluation_tokens(spec, settings, other.require_tokenizer()), settings)
        result |= {"against": other.name, "theirs": score(theirs).as_dict(), "saves": bits_saved(losses, theirs)}
    return result


def _choices_config(settings: dict[str, Any]) -> tuple[Any, str]:
    """The settings, and the file that rows go to."""
    from headway.checks.choices import ChoicesConfig
    from headway.config.toml import build

    out = str(settings.pop("out", ""))
    config = build(ChoicesConfig, settings)
    if not config.data:
        raise UsageError("U001", "which questions?", "headway eval MODEL FILE task=choices")
    return config, out


def _measure_choices(bundle: Any, asked: tuple[Any, str], load: Load, say: Say) -> dict[str, Any]:
    from headway.data.files.rows import BadRows

    config, out = asked
    bad = BadRows(config.bad_rows, setting="bad_rows")
    found: dict[str, Any] = bundle.choices(config, bad).as_dict()
    for line in bad.first:
        say(f"left out: {line}")
    if out:
        save_text(out, "".join(json.dumps(row) + "\n" for row in found["rows"]))
        say(f"{counted(found['n'], 'rows')} in {out}")
    named = {"data": config.data, "task": "choices", "shots": config.shots, "normalise": config.normalise}
    return named | {"skipped": bad.count} | found


def recipe_for(bundle: Any, task: str, settings: Mapping[str, Any]) -> Recipe:
    """How data are read: as the model's run did, or as much as the model reads; with `settings` on top."""
    from headway.tasks.recipe import with_settings

    own = get_task(task).load_predictor().default_recipe(bundle)
    over = dict(settings["data"]) if isinstance(settings.get("data"), Mapping) else {}
    over |= {"text": settings["column"]} if "column" in settings else {}
    over |= {"length": settings["length"]} if "length" in settings else {}
    rest = {key: value for key, value in settings.items() if key not in SETTINGS}
    for key, value in rest.items():
        if not isinstance(value, Mapping):
            raise ConfigError("C014", f"unknown setting {key}{nearest(key, SETTINGS)}", "see headway eval -h")
    return with_settings(own, rest | ({"data": over} if over else {}))


def _evaluate_file(bundle: Any, settings: Mapping[str, Any], load: Load, say: Say) -> dict[str, Any]:
    """A model on data of its task, and another one beside it where `against` names it."""
    from headway.train.provenance import check_held_out

    task = settings["task"]
    recipe = recipe_for(bundle, task, settings)
    spec = settings.get("file") or (settings["data"] if isinstance(settings.get("data"), str) else "")
    knows = bundle.recipe is not None and bundle.recipe.task == task  # what it held out
    if not (spec or knows or recipe.data.test or recipe.data.valid):
        told = "no run of headway's" if bundle.recipe is None else f"a run for {bundle.recipe.task}, not for {task}"
        raise NotFoundError("F001", f"which data? {bundle.name} is {told}", "give some: headway eval MODEL FILE")
    if not (spec or recipe.data.test or recipe.data.valid) and bundle.folder is not None:
        check_held_out(bundle.folder, recipe)
    predictor = get_task(task).load_predictor()
    found = predictor(bundle, recipe).examine(spec)
    result = {"task": task, "data": spec or recipe.data.test or recipe.data.valid, **found.as_dict()}
    if out := settings.get("out"):
        save_text(str(out), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.each))
        say(f"{counted(len(found.each), 'predictions')} in {out}")
    if other_name := settings.get("against"):
        other = load(str(other_name))
        own = recipe_for(other, task, {})  # the same data, read and answered as that model is used to
        read = replace(recipe, data=replace(recipe.data, length=own.data.length), model=own.model)
        try:
            theirs = predictor(other, read).examine(spec)
        except HeadwayError as error:  # which of the two it is about
            raise type(error)(error.code, f"{other.name}: {error.message}", error.hint) from None
        if theirs.metrics.keys() != found.metrics.keys():
            both = (", ".join(each.metrics) for each in (found, theirs))
            raise DataError("D001", f"{bundle.name} is measured by {next(both)}, {other.name} by {next(both)}")
        result |= {"against": other.name, "theirs": theirs.as_dict(), "gain": gain(found, theirs)}
    return result


def gain(ours: Evaluation, theirs: Evaluation) -> tuple[float, float, float]:
    """How much better the first one's answers are, example by example, with bounds: examples are resampled in pairs."""
    import numpy as np

    from headway.tasks.metrics.bootstrap import mean_interval, paired_gain

    if ours.primary_metric is not None and theirs.primary_metric is not None and ours.examples == theirs.examples:
        return paired_gain(ours.primary_metric, theirs.primary_metric)
    scored = [[isinstance(row, Mapping) and "score" in row for row in each] for each in (ours.each, theirs.each)]
    if not all(scored[0] + scored[1]) or not len(scored[0]) == len(scored[1]) > 0:
        counts = f"{ours.examples:,} and {theirs.examples:,} examples, not all with a `score` in Evaluation.each"
        raise DataError("D001", f"{counts}: they cannot be compared in pairs")
    pairs = zip(ours.each, theirs.each, strict=True)
    return mean_interval(np.array([a["score"] - b["score"] for a, b in pairs], dtype=np.float64))


TEXT = Measure("", _text_config, _measure_text)
CHOICES = Measure("choices", _choices_config, _measure_choices)
