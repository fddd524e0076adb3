"""Evaluations of models that are for a task, as `headway eval` finds and prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from headway.recipe import Recipe
    from headway.tasks.figures import Evaluation

EXAMINED = ("classify", "tag", "answer", "embed", "mlm", "seq2seq")
"""Tasks whose models are evaluated on data of their own."""
SETTINGS = ("file", "data", "against", "column", "length", "out", "task")
WORST, LETTERS = 5, 100


def task_for(bundle: Any) -> str:
    """What a model is for: what its run says, or what its heads do."""
    from headway.tasks import task_of

    return task_of(bundle.config) if bundle.recipe is None else str(bundle.recipe.task)


def recipe_for(bundle: Any, task: str, settings: Mapping[str, Any]) -> Recipe:
    """How the data are read: as the run did, or as much as the model takes; what was asked for on top."""
    from headway.recipe import DataConfig, Recipe, with_settings

    own = bundle.recipe
    if task == "seq2seq" and (own is None or own.task != task):
        from headway.tasks.translate import recipe_of

        own = recipe_of(bundle.model, bundle.folder)
    if own is None or own.task != task:
        own = Recipe(task=task, data=DataConfig(length=bundle.config.max_length or 512))  # type: ignore[arg-type]
    over = dict(settings["data"]) if isinstance(settings.get("data"), Mapping) else {}
    over |= {"text": settings["column"]} if "column" in settings else {}
    over |= {"length": settings["length"]} if "length" in settings else {}
    rest = {key: value for key, value in settings.items() if key not in SETTINGS}
    for key, value in rest.items():
        if not isinstance(value, Mapping):
            raise ConfigError("C014", f"unknown setting {key}{nearest(key, SETTINGS)}", "see headway eval -h")
    return with_settings(own, rest | ({"data": over} if over else {}))


def examine(
    bundle: Any, task: str, settings: Mapping[str, Any], load: Callable[[str], Any], say: Callable[..., None]
) -> dict[str, Any]:
    """A model on data of its task, and another one beside it where `against` names it."""
    from headway.cli.writing import save_text
    from headway.tasks import task_class

    recipe = recipe_for(bundle, task, settings)
    spec = settings.get("file") or (settings["data"] if isinstance(settings.get("data"), str) else "")
    kind = task_class(task)
    found = kind.examine(bundle.model, bundle.reader(), recipe, spec)
    result = {"task": task, "data": spec or recipe.data.test or recipe.data.valid, **found.as_dict()}
    if out := settings.get("out"):
        save_text(str(out), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.each))
        say(f"{len(found.each):,} predictions in {out}")
    if other_name := settings.get("against"):
        other = load(str(other_name))
        length = recipe_for(other, task, {}).data.length
        theirs = kind.examine(
            other.model, other.reader(), replace(recipe, data=replace(recipe.data, length=length)), spec
        )
        result |= {"against": other.name, "theirs": theirs.as_dict(), "gain": gain(found, theirs)}
    return result


def gain(ours: Evaluation, theirs: Evaluation) -> tuple[float, float, float]:
    """How much better the first one's answers are, example by example, with bounds: examples are resampled in pairs."""
    import numpy as np

    from headway.tasks.figures import mean_interval, paired_gain

    if ours.measure is not None and theirs.measure is not None and ours.examples == theirs.examples:
        return paired_gain(ours.measure, theirs.measure)
    pairs = [(a, b) for a, b in zip(ours.each, theirs.each, strict=False) if "score" in a and "score" in b]
    if len(pairs) != len(ours.each) or len(ours.each) != len(theirs.each) or not pairs:
        raise DataError("D001", f"{len(ours.each)} and {len(theirs.each)} answers: they cannot be compared in pairs")
    return mean_interval(np.array([a["score"] - b["score"] for a, b in pairs], dtype=np.float64))


def show(result: Mapping[str, Any]) -> None:
    """Figures first, then what explains them."""
    of = f" of {result['data']}" if result["data"] else ", held out in training"
    details = result["details"]
    notes = [f"{details[key]:,} {word}" for key, word in (("cut", "cut"), ("bad_rows", "left out")) if details.get(key)]
    print(f"{result['examples']:,} examples{of}{'; ' if notes else ''}{', '.join(notes)}")
    for name, (value, low, high) in result["figures"].items():
        line = f"{name.replace('_', ' '):14} {value:.4f}   [{low:.4f}, {high:.4f}]"
        if "theirs" in result:
            line += f"   {result['against']}: {result['theirs']['figures'][name][0]:.4f}"
        print(line)
    if "gain" in result:
        value, low, high = result["gain"]
        sure = "better" if low > 0 else "worse" if high < 0 else "not told apart"
        print(f"{'gain':14} {value:+.4f}   [{low:+.4f}, {high:+.4f}]: {sure}")
    for signature in dict.fromkeys(details.get("signatures", {}).values()):
        print(f"  {signature}")
    for key, part in (
        ("confusion", _confusion), ("calibration", _calibration), ("slices", _slices), ("worst", _worst)
    ):  # fmt: skip
        if details.get(key):
            part(details[key])


def _confusion(found: Mapping[str, Any]) -> None:
    names = [str(name)[:14] for name in found["labels"]]
    if len(names) > 12:
        return
    wide = max(6, *(len(name) for name in names))
    print(f"\n{'truth':{wide}}  {'  '.join(f'{name:>{wide}}' for name in names)}")
    for name, row in zip(names, found["counts"], strict=True):
        print(f"{name:{wide}}  {'  '.join(f'{count:{wide},}' for count in row)}")


def _calibration(found: Mapping[str, Any]) -> None:
    print(f"\ncalibration: {found['error']:.4f} expected gap")
    for row in found["bins"]:
        print(f"  sure {row['confidence']:.2f}   right {row['right']:.2f}   {row['examples']:,} times")


def _slices(found: list[Mapping[str, Any]]) -> None:
    print("\nby length")
    for row in found:
        figures = [(k, v) for k, v in row.items() if k not in ("from", "to", "examples")][:2]
        said = "   ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in figures)
        print(f"  {row['from']:>4} … {row['to']:<4} tokens   {row['examples']:>6,} examples   {said}")


def _worst(found: list[Mapping[str, Any]]) -> None:
    print("\nsurest mistakes")
    for row in found[:WORST]:
        sure = "" if row.get("probability") is None else f" ({row['probability']:.2f})"
        print(f"  line {row.get('line')}: {row.get('label')} taken for {row.get('predicted')}{sure}")
        print(f"    {str(row.get('text'))[:LETTERS]}")
