"""Equal terms for the variants of a comparison: as many parameters, as many FLOPs of training, or as much time.

Each variant's model is made without weights before anything is trained, so that every mistake is found first. With
`equal=params` all parameters count, those of embeddings too: it is the number that files and tables show.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

from headway.config.model import MAX_WIDTH
from headway.data.files.lines import read_as
from headway.errors import ConfigError
from headway.model.model import Model
from headway.runs.grid import Equal, naming
from headway.tasks.defaults.choose import Chosen, choose
from headway.tasks.recipe import BUDGET, Recipe, batch_size, with_settings
from headway.tasks.training import TaskContext, Training, make_training
from headway.train.build import base_tokenizer, meta_model
from headway.train.log.cost import model_flops_per_token

TOLERANCE = 0.05
"""How far a variant may be from the first one, as a share; farther away a comparison is refused."""
CLOSE = 0.01
"""A rounder width is taken if it is as near as this."""
ROUND = (64, 32, 16, 8, 4, 2, 1)
"""Multiples of the smallest step of a width, the roundest first."""
MEASURED_BATCHES = 3
"""Batches from which the tokens of a step are known, where they differ."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One variant before its training: its recipe, its data and its model on the meta device."""

    name: str
    chosen: Chosen
    training: Training
    model: Model | None
    """None: only loading can tell (an adapter)."""

    @property
    def recipe(self) -> Recipe:
        return self.chosen.recipe


@dataclass(frozen=True)
class Term:
    """What makes a variant equal to the first: settings on top of its own, and a note for the table."""

    words: tuple[str, ...] = ()
    note: str = ""


def prepare(recipes: Sequence[tuple[str, Recipe]]) -> list[Variant]:
    """Each named recipe with its data read and its model planned; data that several share are read once."""
    found: list[Variant] = []
    with tempfile.TemporaryDirectory(prefix="headway-compare-") as folder:
        for number, (name, recipe) in enumerate(recipes):
            with naming(name):
                chosen = choose(recipe)
                place = Path(folder) / str(number) / "tokenizer"
                training = _training(chosen.recipe, [each.training for each in found], place)
                training.plan(batch_size(chosen.recipe))
                model = meta_model(chosen.recipe, training)
            found.append(Variant(name=name, chosen=chosen, training=training, model=model))
    return found


def _training(recipe: Recipe, known: Sequence[Training], folder: Path) -> Training:
    """The training of a recipe: one that has read the same data, or a new one."""
    for other in known:
        if is_dataclass(other) and _reads(other.recipe) == _reads(recipe):
            return replace(other, recipe=replace(other.recipe, model=recipe.model, train=recipe.train))
    with read_as(recipe.data.encoding):
        return make_training(TaskContext(recipe, folder, base_tokenizer(recipe)))


def _reads(recipe: Recipe) -> tuple[Any, ...]:
    """What a training depends on beside the shape of the model; a model that is counted has one of its own."""
    return recipe.task, recipe.seed, recipe.data, recipe.settings, recipe.model.from_, recipe.model.kind == "ngram"


def terms(equal: Equal, variants: Sequence[Variant], keys: Sequence[str]) -> list[Term]:
    """What makes each variant equal to the first."""
    makers: dict[str, Callable[[Sequence[Variant]], list[Term]]] = {"params": _params, "flops": _flops, "time": _time}
    if not equal:
        return [Term()] * len(variants)
    decided = {
        "params": ["model.width"],
        "flops": [f"train.{key}" for key in sorted(BUDGET)],
        "time": ["train.minutes"],
    }
    if varied := next((key for key in keys if key in decided[equal]), None):
        raise ConfigError("C004", f"equal={equal} chooses {varied}, which is varied", "leave one of the two out")
    return makers[equal](variants)


# --- parameters


def _params(variants: Sequence[Variant]) -> list[Term]:
    target = _counted(variants[0])
    found = []
    for variant in variants:
        with naming(variant.name):
            found.append(_width(variant, target) if variant is not variants[0] else Term(note=_count_note(target)))
    return found


def _counted(variant: Variant) -> int:
    with naming(variant.name):
        if variant.recipe.model.from_ or variant.model is None:
            raise ConfigError(
                "C004", "equal=params chooses the width, and model.from has one", "leave equal=params out"
            )
        return variant.model.parameter_count()


def _width(variant: Variant, target: int) -> Term:
    """The roundest width at which the variant has about `target` parameters."""
    own = _counted(variant)
    shape, heads = _heads(variant)
    unit = math.lcm(heads, 2) * (2 if variant.recipe.model.positions == "rope" and heads % 2 == 0 else 1)
    sizes: dict[int, int | None] = {}

    def size(width: int) -> int | None:
        if width not in sizes:
            sizes[width] = _size_at(variant, {**shape, "width": width})
        return sizes[width]

    if size(unit * 8) == size(unit * 16):
        return Term(note=f"{own:,} parameters: no width changes them")
    near = _bisect(size, unit, target)
    best: tuple[float, int] | None = None
    for step in (unit * each for each in ROUND):
        for width in {(near - unit) // step * step, -(-near // step) * step} - {0}:
            there = size(width)
            off = math.inf if there is None else abs(there - target) / target
            best = min(best or (off, width), (off, width))
        if best is not None and best[0] <= CLOSE:
            break
    if best is None or best[0] > TOLERANCE:
        raise _too_far(size, near, unit, target)
    count = size(best[1])
    assert count is not None
    words = [f"model.{key}={value}" for key, value in {**shape, "width": best[1]}.items()]
    return Term((*_given(variant, words), *words), f"{_count_note(count, target)}, width {best[1]}")


def _too_far(size: Callable[[int], int | None], near: int, unit: int, target: int) -> ConfigError:
    sides = [(width, count) for width in (near - unit, near, near + unit) if width > 0 and (count := size(width))]
    told = ", ".join(f"{width} has {count:,}" for width, count in sides) or "no width fits its heads"
    what = f"equal=params: no width has {target:,} parameters within {TOLERANCE:.0%}: {told}"
    return ConfigError("C004", what, "take a larger first variant, or fewer model.heads, which allow finer widths")


def _heads(variant: Variant) -> tuple[dict[str, int], int]:
    """The heads of a transformer stay as they are, whatever its width; other networks have none."""
    shape = variant.recipe.model
    if shape.kind != "transformer" or variant.model is None:
        return {}, 1
    heads = variant.model.config.output_stack.n_heads
    return ({} if shape.heads else {"heads": heads}), heads


def _size_at(variant: Variant, shape: dict[str, int]) -> int | None:
    """The parameters of a variant with another shape; None if there is no such model."""
    training = variant.training
    try:
        recipe = with_settings(training.recipe, {"model": shape})
        other = replace(training, recipe=recipe) if is_dataclass(training) else None
        model = None if other is None else meta_model(recipe, other)
    except ConfigError:
        return None
    return None if model is None else model.parameter_count()


def _bisect(size: Callable[[int], int | None], unit: int, target: int) -> int:
    """The smallest multiple of `unit` with at least `target` parameters; a width without a model is too small."""
    low, high = 0, 1
    while (size(high * unit) or 0) < target and high * unit < MAX_WIDTH:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (size(middle * unit) or 0) < target else (low, middle)
    return high * unit


def _count_note(count: int, target: int = 0) -> str:
    off = f" ({100 * (count / target - 1):+.1f} %)" if target else ""
    return f"{count:,} parameters{off}"


def _given(variant: Variant, words: Sequence[str]) -> list[str]:
    """What was chosen for a variant, as words: a word of a group would keep the others from being chosen."""
    taken = {word.partition("=")[0] for word in words}
    budget = {f"train.{key}" for key in BUDGET}
    taken |= budget if taken & budget else set()
    return [f"{key}={_text(value)}" for key, value in variant.chosen.settings.items() if key not in taken]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# --- FLOPs and time


def _flops(variants: Sequence[Variant]) -> list[Term]:
    total, found = 0.0, []
    for variant in variants:
        with naming(variant.name):
            if not variant.training.by_gradient:
                found.append(Term(note="no steps of a gradient: as it stands"))
                continue
            each = _step_flops(variant)
            steps = _steps(variant) if not total else max(1, round(total / each))
            total = total or steps * each
            off = steps * each / total - 1
            if abs(off) > TOLERANCE:
                what = f"equal=flops: {steps} of its steps are {off:+.0%} from the first variant's FLOPs"
                raise ConfigError("C004", what, "give the first variant more steps")
            words = [f"train.steps={steps}"]
            found.append(Term((*_given(variant, words), *words), f"{steps * each:.2e} FLOPs, {steps:,} steps"))
    return found


def _step_flops(variant: Variant) -> float:
    if variant.model is None:
        raise ConfigError(
            "C004", "equal=flops does not know the size of an adapter's model", "give model.from its base"
        )
    plan = variant.training.plan(batch_size(variant.recipe))
    batches = [variant.training.batch(plan.samples(step)).tokens for step in range(MEASURED_BATCHES)]
    return model_flops_per_token(variant.recipe, variant.model) * statistics.fmean(batches)


def _steps(variant: Variant) -> int:
    """The steps of the first variant, which decide the FLOPs of all."""
    budget = variant.recipe.train
    if budget.steps is not None:
        return budget.steps
    if budget.epochs is None:
        what = f"equal=flops needs a budget in steps or epochs, not train.minutes={budget.minutes:g}"
        raise ConfigError("C004", what, "add train.steps=N, or take equal=time")
    return max(1, round(budget.epochs * variant.training.plan(batch_size(variant.recipe)).steps_per_epoch))


def _time(variants: Sequence[Variant]) -> list[Term]:
    """The same train.minutes for all; a run's clock counts its steps, the first one with its compiling."""
    minutes = variants[0].recipe.train.minutes
    for variant in variants:
        if minutes is None or variant.recipe.train.minutes != minutes:
            with naming(variant.name):
                have = next(f"train.{key}" for key in sorted(BUDGET) if getattr(variant.recipe.train, key) is not None)
                wanted = "train.minutes" if minutes is None else f"train.minutes={minutes:g}"
                raise ConfigError(
                    "C004", f"equal=time needs {wanted}, not {have}", "add train.minutes=N to the command"
                )
    return [Term(note=f"{minutes:g} min in training steps")] * len(variants)
