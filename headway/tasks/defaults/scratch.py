"""Settings for a new model, by the amount of data and the time there is: vocabulary, length, size, epochs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from headway.config.recipe import RUNNING
from headway.data.datasets.text import DEFAULT_VOCAB_SIZE
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.tasks.base import FineTuning, Task
from headway.tasks.defaults.finetuning import budget, held_in
from headway.tasks.defaults.sample import Sample, covering_length
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task

CORE, ACCELERATOR = 25e9, 30e12
"""Floating-point operations per second that training gets from a CPU core, and from an accelerator. Rough on purpose:
the same command should choose the same model on similar machines."""
SIZES = ((2, 64), (2, 128), (3, 192), (4, 256), (6, 384), (8, 512), (12, 768))
"""Layers and width of the models to choose from."""
PER_TOKEN = 10
"""Parameters of the blocks for each token of the data, at most: larger models learn the data by heart. The recipes
multi30k and wikitext have about as many."""
OPTIMAL = 15
"""Tokens to train on for each parameter of the blocks, where the text does not run out: Hoffmann et al. (2022) have 20
for each parameter of all."""
EPOCHS, FEWEST_EPOCHS, MOST_EPOCHS = 3000, 5, 40
"""Epochs are this many, divided by the root of the number of examples, within bounds."""
RATE, MOST_LR = 0.25, 2e-3
"""The learning rate is this share of 1/width, and at most so much."""
COVERED = 0.99
"""Share of the examples that data.length does not cut."""
COUNTED_EPOCHS = (10.0, 100.0)
"""The fewest and the most epochs of a new model, for many and for few examples that are no texts."""
VOCAB, FEWEST_PIECES, MOST_PIECES = 4, 300, 32_000
"""Pieces of a vocabulary: this many times the root of the number of characters, within bounds."""
MANY = 10_000
"""From this many examples on, a batch has 64 of them and not 32."""
ROOMY = 2
"""A model with more parameters than this for each token of the data gets more dropout."""
DEEP = 4
"""Deeper models are easier to train with the norm before each branch."""
WARMUP, EVALUATIONS = 0.1, 8
SIZE = ("model.depth", "model.width", "model.heads", "model.ff")


@dataclass(frozen=True)
class Wanted:
    """The data in tokens, and the operations that a run may take."""

    rows: int
    tokens: int
    vocab: int
    operations: float


def scratch_settings(recipe: Recipe, keys: Collection[str], sample: Sample) -> dict[str, Any]:
    """Key → value of every setting for which a new model has a rule; `keys` are those that were given."""
    task = get_task(recipe.task)
    vocab = recipe.data.vocab if "data.vocab" in keys else _vocabulary(recipe, sample)
    tokenizer = _tokenizer(recipe, sample, vocab)
    length = recipe.data.length
    if "data.length" not in keys and not (task.fills_rows and recipe.data.rows in RUNNING):
        counts = sample.tokens_of(tokenizer, one_sequence=task.one_sequence)
        length = covering_length(counts, COVERED, task.fine_tuning.longest)
    tokens = max(1, sample.tokens(tokenizer))
    rows = max(1, tokens // length) if task.fills_rows else sample.rows
    minutes = recipe.train.minutes if "train.minutes" in keys else None
    wanted = Wanted(rows, tokens, tokenizer.vocab_size, 60 * (minutes or task.minutes) * _speed(recipe))
    chosen = _running_text(wanted, task) if task.fills_rows else _examples(recipe, keys, wanted, task)
    if task.fills_rows:  # the head should not be larger than the blocks
        vocab = min(vocab, 12 * chosen["model.depth"] * chosen["model.width"])
    return {"data.vocab": vocab, "data.length": length, **chosen}


def _vocabulary(recipe: Recipe, sample: Sample) -> int:
    """Pieces for this much text, to two digits; 0 for a tokenizer that has no size to choose."""
    if recipe.data.tokenizer not in DEFAULT_VOCAB_SIZE:
        return 0
    pieces = min(max(VOCAB * math.sqrt(sample.characters), FEWEST_PIECES), MOST_PIECES)
    return int(float(f"{pieces:.1e}"))


def _tokenizer(recipe: Recipe, sample: Sample, vocab: int) -> Tokenizer:
    """A tokenizer like the run's, trained on the sample, to count tokens with."""
    lines = (line for texts in sample.texts for text in texts for line in text.splitlines(keepends=True))
    size = vocab or DEFAULT_VOCAB_SIZE.get(recipe.data.tokenizer, 0)
    return train_tokenizer(recipe.data.tokenizer, lines, size, lower=recipe.data.lower)


def _speed(recipe: Recipe) -> float:
    import torch

    return ACCELERATOR * recipe.gpus if torch.cuda.is_available() else CORE * _cores()


def _cores() -> int:
    """Cores that this process may use, as a power of two."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 << (cores.bit_length() - 1)


def _blocks(task: Task, depth: int, width: int) -> int:
    """Parameters of the blocks; a decoder that reads an encoder has a third branch."""
    return (12 if task.one_sequence or not task.predicts_tokens else 28) * depth * width**2


def _running_text(wanted: Wanted, task: Task) -> dict[str, Any]:
    """A language model: as large as it can be trained in the time, and for as long as the time says."""
    most = min(PER_TOKEN * wanted.tokens, math.sqrt(wanted.operations / (6 * OPTIMAL)))
    depth, width = _largest(lambda depth, width: _blocks(task, depth, width) <= most)
    epochs = wanted.operations / 6 / (_blocks(task, depth, width) + wanted.vocab * width) / wanted.tokens
    budget = {"train.epochs": float(MOST_EPOCHS)} if epochs > MOST_EPOCHS else {"train.minutes": task.minutes}
    return {
        "model.depth": depth,
        "model.width": width,
        "model.heads": None,
        "train.batch": 0,
        "train.lr": None,
        **budget,
    }


def _examples(recipe: Recipe, keys: Collection[str], wanted: Wanted, task: Task) -> dict[str, Any]:
    """A model of examples: as large as data and time allow, for a number of epochs."""
    epochs = min(max(round(EPOCHS / math.sqrt(wanted.rows)), FEWEST_EPOCHS), MOST_EPOCHS)

    def operations(depth: int, width: int) -> float:
        """Of one epoch. Of an encoder–decoder, a token passes through one half."""
        head = wanted.vocab * width if task.predicts_tokens else 0
        return 6 * wanted.tokens * (_blocks(task, depth, width) + head) / (1 if task.one_sequence else 2)

    def fits(depth: int, width: int) -> bool:
        small = _blocks(task, depth, width) <= PER_TOKEN * wanted.tokens
        return small and epochs * operations(depth, width) <= wanted.operations

    depth, width = _largest(fits)
    epochs = min(epochs, max(FEWEST_EPOCHS, round(wanted.operations / operations(depth, width))))
    batch = 64 if wanted.rows >= MANY else 32
    rows = wanted.rows if recipe.data.valid else max(1, round(0.9 * wanted.rows))
    steps = recipe.train.steps if "train.steps" in keys and recipe.train.steps else epochs * -(-rows // batch)
    every = max(1, steps // EVALUATIONS)
    return {
        "model.depth": depth,
        "model.width": width,
        "model.heads": max(2, width // 64),
        "model.norm_at": "post" if depth <= DEEP else "pre",
        "model.dropout": 0.3 if _blocks(task, depth, width) > ROOMY * wanted.tokens else 0.1,
        "train.epochs": float(epochs),
        "train.batch": batch,
        "train.lr": float(f"{min(MOST_LR, RATE / width):.1e}"),
        "train.warmup": max(1, round(WARMUP * steps)),
        "train.keep_best": True,
        "train.eval_every": every,
        "train.sample_every": 4 * every,
        "train.save_every": 4 * every,
    }


def _largest(fits: Callable[[int, int], bool]) -> tuple[int, int]:
    """The largest size that fits; the smallest one if none does."""
    return next((size for size in reversed(SIZES) if fits(*size)), SIZES[0])


def counted_settings(recipe: Recipe, keys: Collection[str], count: int) -> dict[str, Any]:
    """Key → value for a new model that learns from examples that are no texts: the budget, by their number."""
    rule = FineTuning(epochs=COUNTED_EPOCHS, batch=recipe.train.batch)
    return {**get_task(recipe.task).made_up_sizes, **budget(recipe, keys, held_in(recipe, count), rule, EPOCHS)}
