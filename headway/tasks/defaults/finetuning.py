"""Settings for fine-tuning a pretrained model, by the kind of task, the model's width and the number of examples.

The rules come from `benchmarks/defaults.py`, which measures them beside hand-tuned recipes (docs/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import RUNNING
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.tasks.base import FineTuning
from headway.tasks.defaults.sample import Sample, covering_length
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task

WIDTH = 384
"""The width for which `FineTuning.lr` is given. Wider models want smaller steps: BERT's 768 about a third of it."""
MOST_LR = 5e-4
LORA = 5
"""Adapters start from zero and are few: they want a higher rate than all weights."""
EPOCHS = 350
"""Epochs are this many, divided by the root of the number of examples: 18 for 400 examples, 4 for 7,000."""
LAYER_DECAY = 0.9
"""Each block learns a little slower than the one above it (Clark et al. 2020)."""
FEW = 5000
"""Below this many examples, a batch has 16 of them and not 32: twice the steps from the same examples."""
WARMUP, EVALUATIONS = 0.1, 8
"""The warm-up as a share of the steps, and how often a run is evaluated."""
COVERED = 0.99
"""Share of the examples that data.length does not cut."""


def finetuning_settings(
    recipe: Recipe,
    keys: Collection[str],
    base: AnyConfig,
    tokenizer: Tokenizer | None,
    sample: Sample | None,
    count: int | None = None,
) -> dict[str, Any]:
    """Key → value of every setting for which fine-tuning has a rule; `keys` are those that were given.

    `count` is the number of examples that are no texts.
    """
    task = get_task(recipe.task)
    rule = task.fine_tuning
    chosen: dict[str, Any] = {
        "train.lr": learning_rate(rule.lr, base.output_stack.d_model, lora=recipe.model.lora > 0),
        "train.schedule": "linear",
        "train.final_lr": 0.0,
        "train.weight_decay": 0.01,
        "train.betas": (0.9, 0.999),
        "train.layer_decay": LAYER_DECAY,
        "train.keep_best": rule.keep_best,
        **{f"{task.name}.{name}": value for name, value in rule.settings.items()},
    }
    if count is not None:
        return {**chosen, **budget(recipe, keys, held_in(recipe, count), rule)}
    if sample is None or tokenizer is None:
        return {**chosen, "train.epochs": rule.epochs[0], "train.batch": 32, "train.warmup": 50}
    most = min(rule.longest, base.max_length or rule.longest)
    counts = sample.tokens_of(tokenizer, one_sequence=task.one_sequence)
    length = min(covering_length(counts, COVERED, most) + rule.around, most)
    if task.fills_rows and recipe.data.rows in RUNNING:
        length = most
    rows = sample.rows
    if task.fills_rows:
        rows = max(1, sample.tokens(tokenizer) // (recipe.data.length if "data.length" in keys else length))
    return {"data.length": length, **chosen, **budget(recipe, keys, held_in(recipe, rows), rule)}


def held_in(recipe: Recipe, rows: int) -> int:
    """The examples that are left for training."""
    return rows if recipe.data.valid else max(1, round(0.9 * rows))


def learning_rate(lr: float, width: int, *, lora: bool) -> float:
    """The peak rate of a model of this width, to two digits."""
    rate = min(MOST_LR, lr * (WIDTH / width) ** 1.5) * (LORA if lora else 1)
    return float(f"{rate:.1e}")


def budget(
    recipe: Recipe, keys: Collection[str], rows: int, rule: FineTuning, per_root: float = EPOCHS
) -> dict[str, Any]:
    """Epochs and batch, and what is counted in steps: the warm-up, and how often to evaluate, sample and save."""
    train = recipe.train
    batch = train.batch if "train.batch" in keys and train.batch else rule.batch or (16 if rows < FEW else 32)
    fewest, most = rule.epochs
    epochs: float | None = float(min(max(round(per_root / math.sqrt(rows)), fewest), most))
    if "train.epochs" in keys:
        epochs = train.epochs
    if "train.steps" in keys and train.steps:
        steps = train.steps
    else:  # a run by minutes: as if it had the epochs of the rule
        steps = max(1, math.ceil(rows / batch) * math.ceil(epochs or fewest))
    every = max(1, steps // EVALUATIONS)
    return {
        "train.batch": batch,
        "train.epochs": epochs,
        "train.warmup": max(1, round(WARMUP * steps)),
        "train.eval_every": every,
        "train.sample_every": 4 * every,
        "train.save_every": 4 * every,
    }
