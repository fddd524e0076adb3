"""Evaluation of a model on a text, on data of its task, or on questions; with another model beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.inputs import data_spec, is_rows
from headway.api.results import open_results
from headway.api.settings import plain
from headway.api.tables import Results, frame, html_table
from headway.config.keys import did_you_mean, dotted_keys
from headway.config.recipe import UTF_8, DataConfig
from headway.config.toml import merge
from headway.data.files.lines import read_as
from headway.data.files.rows import first_rows
from headway.errors import ConfigError, DataError, HeadwayError, NotFoundError, UsageError, counted, nearest
from headway.jsonfile import show
from headway.progress import progress_printer
from headway.tasks.registry import get_task, task_names, tasks

if TYPE_CHECKING:
    import pandas

    from headway.api.bundle import Bundle
    from headway.tasks.metrics.bootstrap import Evaluation, Interval
    from headway.tasks.recipe import Recipe

Load = Callable[[str], Any]
Say = Callable[..., None]
Found = tuple[dict[str, Any], list[Any]]
"""Plain values, and predictions."""
SETTINGS = ("file", "data", "against", "column", "length", "out", "task")
TEXT_SETTINGS = ("data", "against", "column", "length", "overlap", "encoding", "bad_rows")
OTHER_DATA = {"data", "file", "column", "length", "overlap"}
"""Settings that name other data than those of the model's run, or another way to read them."""


@dataclass(frozen=True, repr=False)
class EvaluationResult:
    """How good a model is on some data: `found.metrics["accuracy"]`, with bounds in `found.intervals`."""

    facts: dict[str, Any]
    """All that was found, as plain values; `headway eval --json` prints the same."""
    predictions: Results[Any] = field(default_factory=Results)
    """What was predicted, example by example in the order of the data; empty for a text."""

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self.facts["model"])

    @property
    def intervals(self) -> dict[str, Interval]:
        """Each metric with the bounds that hold 95 % of its resamples: `value, low, high = found.intervals["f1"]`."""
        figures = self.facts.get("figures", self.facts)
        return {name: (x[0], x[1], x[2]) for name, x in figures.items() if _is_interval(name, x)}

    @property
    def metrics(self) -> dict[str, float]:
        """Each metric: `found.metrics["accuracy"]`."""
        return {name: three[0] for name, three in self.intervals.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self.facts

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row for each metric: value and bounds."""
        return frame([dict(zip(HEAD, (name, *three), strict=True)) for name, three in self.intervals.items()])

    def __repr__(self) -> str:
        told = "".join(f", {name} {v:.4g} [{low:.4g}, {high:.4g}]" for name, (v, low, high) in self.intervals.items())
        return f"EvaluationResult({self.model}{told})"

    def _repr_html_(self) -> str:
        return html_table(HEAD, [[name, *three] for name, three in self.intervals.items()])


HEAD = ("metric", "value", "low", "high")
COMPARED = ("saves", "gain")
"""Differences to another model, which are no metrics of this one."""


def _is_interval(name: str, value: Any) -> bool:
    numbers = isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value)
    return numbers and len(value) == 3 and name not in COMPARED


@dataclass(frozen=True)
class Measure:
    """One kind of evaluation."""

    name: str
    config: Callable[[dict[str, Any]], Any]
    """Settings of this kind, checked."""
    run: Callable[[Any, Any, Load, Say], Found]
    """What is found, from a bundle and these settings; `Load` loads the model to compare with."""


def check_settings(task: str, settings: Mapping[str, Any]) -> None:
    """Find mistakes in settings before the model is loaded, as far as they do not depend on the model."""
    known = [CHOICES.name, *task_names()]
    if task and task not in known:
        raise ConfigError("C003", f"task = {task} is unknown{nearest(task, known)}", f"one of {', '.join(known)}")
    of_task = {"out", *task_names()} & settings.keys() or isinstance(settings.get("data"), dict)
    if task == CHOICES.name or not (task or of_task):
        (CHOICES if task else TEXT).config(dict(settings))


def evaluate_data(
    model: str | os.PathLike[str] | Bundle,
    data: Any,
    *,
    task: str,
    against: str | os.PathLike[str] | Bundle,
    settings: Mapping[str, Any],
    quiet: bool,
) -> EvaluationResult:
    """A model, loaded or not, on a file, on rows, or on what its run held out."""
    from headway.api.bundle import Bundle, load

    given = _data_settings(settings)
    if against:
        given["against"] = against.name if isinstance(against, Bundle) else os.fspath(against)
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        if spec := data_spec(data, Path(folder)):
            given["file" if "data" in given else "data"] = spec
        check_settings(task, given)
        bundle = model if isinstance(model, Bundle) else load(model)
        device = next(bundle.model.parameters()).device

        def other(name: str) -> Bundle:
            return against if isinstance(against, Bundle) else load(name, device=device)

        found = evaluate_model(bundle, task, given, other, progress_printer(quiet))
    if not is_rows(data):
        return found
    rows = ({key: value for key, value in row.items() if key != "file"} for row in found.predictions)
    return replace(found, facts={**found.facts, "data": "rows"}, predictions=Results(rows))  # the file is gone


def _data_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as nested settings: `text="body"` and `**{"data.text": "body"}` are both the setting data.text."""
    given: dict[str, Any] = {}
    for key, value in settings.items():
        section, dot, name = f"data.{key}".partition(".") if _is_data_setting(key) else key.partition(".")
        given = merge(given, {section: {name: plain(value)}} if dot else {section: plain(value)})
    return given


def _is_data_setting(key: str) -> bool:
    return key not in (*SETTINGS, *TEXT_SETTINGS) and key in {field.name for field in fields(DataConfig)}


def evaluate_model(bundle: Any, task: str, settings: Mapping[str, Any], load: Load, say: Say) -> EvaluationResult:
    """A model on the data that `settings` name; `task` is empty for what the model is for."""
    task = task or _task_of_rows(bundle.task, settings, say)
    measure = _measure(task, task or bundle.task, own=not OTHER_DATA & settings.keys())
    config = measure.config({**settings, **({"task": measure.name} if measure.name in task_names() else {})})
    facts, predictions = measure.run(bundle, config, load, say)
    rows = (row if isinstance(row, Mapping) else {"value": row} for row in predictions)
    return EvaluationResult({"model": bundle.name, **facts}, Results(rows))


def _task_of_rows(own: str, settings: Mapping[str, Any], say: Say) -> str:
    """The model's own task if the data are surely for it, and nothing says how to read them as a text; else ""."""
    inner = settings["data"] if isinstance(settings.get("data"), Mapping) else {}
    spec = settings.get("file" if inner else "data", "")
    if not spec or settings.keys() & {"column", "length", "overlap"} or "text" in inner or not get_task(own).generates:
        return ""
    with read_as(inner.get("encoding", UTF_8)):
        rows = first_rows(spec)
    found = next((task for task in tasks() if task.generates and task.evaluates and task.reads(rows)), None)
    if found is None:
        return ""
    same = found.name == own
    say(
        f"{show(spec)} holds {found.title}: " + (f"scored as task={own}" if same else f"task={found.name} scores it so")
    )
    return own if same else ""


def _measure(asked: str, name: str, own: bool) -> Measure:
    """By the name of a task. A model that generates is scored on a text, unless its task is asked for by name, or there
    are no data but the run's `own`."""
    if name == CHOICES.name:
        return CHOICES
    task = get_task(name)
    scored_on_text = task.generates and not (task.evaluates and (asked or own))
    return TEXT if scored_on_text else Measure(name, dict, _evaluate_file)


def _flat(settings: dict[str, Any], **names: str) -> dict[str, Any]:
    """Settings such as data.encoding=… under the names that they have here; `names` are those that differ."""
    if not isinstance(inner := settings.get("data"), dict):
        return settings
    rest = {key: value for key, value in settings.items() if key not in ("data", "file")}
    inner = {str(names.get(key, key)): value for key, value in inner.items()}
    return {"data": settings.get("file", ""), **inner, **rest}


def _text_config(settings: dict[str, Any]) -> dict[str, Any]:
    settings = _flat(settings, text="column")
    for key in settings:
        if key not in TEXT_SETTINGS:
            close = did_you_mean(key, (*TEXT_SETTINGS, "task", "out", *dotted_keys(DataConfig, "data")))
            raise ConfigError("C014", f"unknown setting {key}{close}", "see headway eval -h")
    return settings


def _measure_text(bundle: Any, config: dict[str, Any], load: Load, say: Say) -> Found:
    from headway.checks.perplexity import bits_saved, evaluation_text, evaluation_tokens, measure, score

    spec, settings = evaluation_text(bundle.folder, str(config.get("data", "")))
    names = {"column": "text", **{name: name for name in ("length", "overlap", "encoding", "bad_rows")}}
    settings = replace(settings, **{ours: config[name] for name, ours in names.items() if name in config})
    losses = measure(bundle.model, evaluation_tokens(spec, settings, bundle.require_tokenizer()), settings)
    result: dict[str, Any] = {"data": spec, **score(losses).as_dict()}
    if "against" in config:
        other = load(config["against"])
        theirs = measure(other.model, evaluation_tokens(spec, settings, other.require_tokenizer()), settings)
        result |= {"against": other.name, "theirs": score(theirs).as_dict(), "saves": bits_saved(losses, theirs)}
    return result, []


def _choices_config(settings: dict[str, Any]) -> tuple[Any, str]:
    """The settings, and the file that rows go to."""
    from headway.checks.choices import ChoicesConfig
    from headway.config.toml import build

    settings = _flat(settings)
    out = str(settings.pop("out", ""))
    config = build(ChoicesConfig, settings)
    if not config.data:
        raise UsageError("U001", "which questions?", "headway eval MODEL FILE task=choices")
    return config, out


def _measure_choices(bundle: Any, asked: tuple[Any, str], load: Load, say: Say) -> Found:
    from headway.data.files.rows import BadRows

    config, out = asked
    bad = BadRows(config.bad_rows, setting="bad_rows")
    found: dict[str, Any] = bundle.choices(config, bad).as_dict()
    for line in bad.first:
        say(f"left out: {line}")
    if out:
        with open_results(out) as write:
            write(found["rows"])
        say(f"{counted(found['n'], 'rows')} in {out}")
    named = {"data": config.data, "task": "choices", "shots": config.shots, "normalise": config.normalise}
    return named | {"skipped": bad.count} | found, found["rows"]


def recipe_for(bundle: Any, task: str, settings: Mapping[str, Any]) -> Recipe:
    """How data are read: as the model's run did, or as much as the model reads; with `settings` on top."""
    from headway.tasks.recipe import recipe_keys, with_settings

    own = get_task(task).load_predictor().default_recipe(bundle)
    over = dict(settings["data"]) if isinstance(settings.get("data"), Mapping) else {}
    over |= {"text": settings["column"]} if "column" in settings else {}
    over |= {"length": settings["length"]} if "length" in settings else {}
    rest = {key: value for key, value in settings.items() if key not in SETTINGS}
    for key, value in rest.items():
        if not isinstance(value, Mapping):
            known = (name for name in recipe_keys(task) if name.startswith(("data.", f"{task}.")))
            close = did_you_mean(key, (*SETTINGS, *known))
            raise ConfigError("C014", f"unknown setting {key}{close}", "see headway eval -h")
    return with_settings(own, rest | ({"data": over} if over else {}))


def _evaluate_file(bundle: Any, settings: Mapping[str, Any], load: Load, say: Say) -> Found:
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
        with open_results(str(out)) as write:
            write(found.each)
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
    return result, found.each


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
