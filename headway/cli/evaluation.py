"""Evaluations of models that are for a task, as `headway eval` finds and prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError, DataError, HeadwayError, NotFoundError, counted, nearest

if TYPE_CHECKING:
    from headway.report.evaluation import Block
    from headway.tasks.metrics.bootstrap import Evaluation, Interval
    from headway.tasks.recipe import Recipe

SETTINGS = ("file", "data", "against", "column", "length", "out", "task")
WORST, LETTERS, MOST_LABELS, MOST_COLUMNS, NAME = 5, 100, 12, 14, 16


def recipe_for(bundle: Any, task: str, settings: Mapping[str, Any]) -> Recipe:
    """How data are read: as the model's run did, or as much as the model reads; with `settings` on top."""
    from headway.tasks.recipe import with_settings
    from headway.tasks.registry import get_task

    own = get_task(task).load_predictor().default_recipe(bundle)
    over = dict(settings["data"]) if isinstance(settings.get("data"), Mapping) else {}
    over |= {"text": settings["column"]} if "column" in settings else {}
    over |= {"length": settings["length"]} if "length" in settings else {}
    rest = {key: value for key, value in settings.items() if key not in SETTINGS}
    for key, value in rest.items():
        if not isinstance(value, Mapping):
            raise ConfigError("C014", f"unknown setting {key}{nearest(key, SETTINGS)}", "see headway eval -h")
    return with_settings(own, rest | ({"data": over} if over else {}))


def evaluate_file(
    bundle: Any, task: str, settings: Mapping[str, Any], load: Callable[[str], Any], say: Callable[..., None]
) -> dict[str, Any]:
    """A model on data of its task, and another one beside it where `against` names it."""
    from headway.cli.app import save_text
    from headway.tasks.registry import get_task
    from headway.train.provenance import check_held_out

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


def metric_line(name: str, interval: Interval, digits: int, theirs: Interval | None, against: str) -> str:
    """A metric with its interval, and the same metric of another model."""
    value, low, high = interval
    line = f"{name.replace('_', ' '):14} {value:.{digits}f}   [{low:.{digits}f}, {high:.{digits}f}]"
    return line if theirs is None else f"{line}   {against}: {theirs[0]:.{digits}f}"


def verdict(low: float, high: float, than: str) -> str:
    """What the interval of a difference says, where more is better."""
    return f"better {than}" if low > 0 else f"worse {than}" if high < 0 else "no significant difference"


def show(result: Mapping[str, Any]) -> None:
    """Figures first, then what explains them."""
    from headway.report.evaluation import blocks

    of = f" of {result['data']}" if result["data"] else ", held out in training"
    details = result["details"]
    notes = [f"{details[key]:,} {word}" for key, word in (("cut", "cut"), ("bad_rows", "left out")) if details.get(key)]
    print(f"{counted(result['examples'], 'examples')}{of}{'; ' if notes else ''}{', '.join(notes)}")
    theirs = result["theirs"]["figures"] if "theirs" in result else {}
    for name, interval in result["figures"].items():
        print(metric_line(name, interval, 4, theirs.get(name), result.get("against", "")))
    if "gain" in result:
        value, low, high = result["gain"]
        name = f"than {result['against']}"
        print(f"{'difference':14} {value:+.4f}   [{low:+.4f}, {high:+.4f}]: {verdict(low, high, name)}")
    for signature in dict.fromkeys(details.get("signatures", {}).values()):
        print(f"  {signature}")
    for block in blocks(details):
        _show_block(block)


def _show_block(block: Block) -> None:
    """A part of an evaluation in a terminal; the report shows the same blocks."""
    from headway.report.evaluation import Calibration, Mistakes
    from headway.report.format import count

    if isinstance(block, Mistakes):
        print("\nsurest mistakes")
        for text, said in block.rows[:WORST]:
            print(f"  {said}\n    {text[:LETTERS]}")
    elif isinstance(block, Calibration):
        print("\ncalibration" + ("" if block.error is None else f": {block.error:.4f} expected gap"))
        for sure, right, examples in block.bins:
            print(f"  sure {sure:.2f}   right {right:.2f}   {count(examples)} times")
    elif len(block.head) <= MOST_COLUMNS and len(block.rows) <= MOST_LABELS:
        lines = [[_truncate(cell) for cell in line] for line in (block.head, *block.rows)]
        wide = [max(len(line[i]) for line in lines) for i in range(len(block.head))]
        print(f"\n{block.title}")
        for first, *rest in lines:
            cells = (f"{cell:>{max(6, size)}}" for cell, size in zip(rest, wide[1:], strict=True))
            print(f"  {first:{wide[0]}}  {'  '.join(cells)}".rstrip())


def _truncate(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"
