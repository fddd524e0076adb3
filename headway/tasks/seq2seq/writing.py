"""Training of a decoder that writes a text for an input: losses, scores and tokenizers of all such tasks.

Letters: N inputs, T tokens written.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from headway.config.recipe import DataConfig
from headway.data.batching.padding import Examples, inference_batch_tokens
from headway.data.batching.permutation import Index
from headway.data.datasets.parallel import Pair
from headway.data.datasets.text import DEFAULT_VOCAB_SIZE
from headway.data.tokenizers.tokenizer import Tokenizer, load_tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.losses.tokens import IGNORE, r_drop_loss, token_loss
from headway.tasks.metrics.bootstrap import Evaluation, Metric
from headway.tasks.metrics.chance import unigram_loss
from headway.tasks.metrics.slices import QUARTERS, by_size
from headway.tasks.metrics.translation import metrics, primary_metric
from headway.tasks.recipe import Recipe
from headway.tasks.training import Training

MARKS = ("<pad>", "<s>", "</s>")
"""Padding, the token a decoder starts from, and the end of a text."""
SAMPLES = 2
PART, MOST_PARTS = 50, 8
"""Texts that make a part when they are scored by length, and how many parts there are: a curve with an end to it."""


class Written(Protocol):
    """Inputs of any kind and the texts that belong to them."""

    @property
    def pairs(self) -> Sequence[Pair]: ...
    @property
    def target(self) -> Examples: ...
    def some(self, count: int) -> Self:
        """The first of them."""
        ...

    def batches(self, tokens: int) -> Iterable[list[int]]:
        """All of them in batches of about so many tokens."""
        ...


W = TypeVar("W", bound=Written)


class WritingTraining(Training, Generic[W]):
    """A text for an input, predicted token by token from what the encoder has read. Subclasses say what it reads."""

    recipe: Recipe
    tokenizer: Tokenizer
    train: W
    valid: W
    _evaluations: Any
    """Counts evaluations."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """bleu or rouge."""

    @abstractmethod
    def plain_batch(self, part: W, rows: Index) -> Batch:
        """What the encoder reads, its mask, what the decoder reads, and what it is to predict; nothing is random."""

    @abstractmethod
    def write(self, model: Model, part: W) -> list[str]:
        """What the model makes of each input."""

    @abstractmethod
    def assess(self, model: Model, part: W) -> Evaluation:
        """The full evaluation of a part."""

    @property
    def writes(self) -> bool:
        """Whether every evaluation scores texts, as well as the loss; several processes have a model in parts."""
        config = self.recipe.settings
        return config.generate_every == 1 and config.eval_texts > 0 and self.recipe.gpus == 1

    @property
    def primary_metric(self) -> str:  # type: ignore[override]
        return {"bleu": "bleu", "rouge": "rouge_l"}[self.metric] if self.writes else "valid"

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return self.writes

    @cached_property
    def chance(self) -> dict[str, float]:
        learned, held_out = (list(chain.from_iterable(part.target.ids)) for part in (self.train, self.valid))
        loss = unigram_loss(learned, held_out, self.tokenizer.target.vocab_size)
        return {"valid": loss, **({"bleu": 1.0} if self.metric == "bleu" else {})}  # a few common words are right

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        """The loss without smoothing, and now and then what the texts are worth that the model writes."""
        config = self.recipe.settings
        result = self._loss(model, self.valid, world)
        due = next(self._evaluations) % config.generate_every == config.generate_every - 1
        if not (due and config.eval_texts and world.size == 1):
            return result
        some = self.valid.some(config.eval_texts)
        return {**result, **{each.name: each.value for each in self.quick_metrics(self.write(model, some), some)}}

    def quick_metrics(self, texts: Sequence[str], part: W) -> list[Metric]:
        """What is measured at every evaluation."""
        return [primary_metric(self.metric, texts, [pair.targets for pair in part.pairs])]

    def metrics(self, texts: Sequence[str], part: W) -> list[Metric]:
        """All that there is to measure."""
        return metrics(self.metric, texts, [pair.targets for pair in part.pairs])

    def _loss(self, model: Model, part: W, world: ProcessGroup) -> dict[str, float]:
        loss = pair_loss(0.0)
        with evaluating(model):
            batches = list(part.batches(inference_batch_tokens(world.device) // 2))
            total, count = 0.0, 0.0
            for first in track(range(0, len(batches), world.size), "evaluating", unit="batches"):
                mine = first + world.rank
                batch = self.plain_batch(part, np.array(batches[min(mine, len(batches) - 1)]))
                found = float(loss(model, *batch.to(world.device)))
                if mine < len(batches):  # too few for all: the last process reads again what counts once
                    total, count = total + found, count + batch.count
        total, count = world.sum(total, count)
        return {"valid": total / count, "perplexity": math.exp(min(total / count, 700.0))}

    def evaluate_examples(self, model: Model, part: W, world: ProcessGroup) -> dict[str, float]:
        """All of the texts, and all that there is to measure of them."""
        result = self._loss(model, part, world)
        if world.size > 1 or not self.recipe.settings.eval_texts:
            return result
        return {**result, **{each.name: each.value for each in self.metrics(self.write(model, part), part)}}

    def details(self, model: Model) -> dict[str, Any] | None:
        if not self.recipe.settings.eval_texts:
            return None
        part, name = (self.valid, "valid") if self.test_part is None else (self.test_part, "test")
        return {"data": name, "source": getattr(self.recipe.data, name), **self.assess(model, part).as_dict()}

    def sample(self, model: Model) -> str:
        """The first held-out inputs, what the model makes of them, and what it should."""
        some = self.valid.some(SAMPLES)
        rows = zip(some.pairs, self.write(model, some), strict=True)
        return "\n".join(f"{pair.source[:200]}\n  → {text}\n  = {pair.targets[0]}" for pair, text in rows)


def start_token(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """What a decoder reads first: as the base has it, or the token that is made for it."""
    what = recipe.model.from_
    start = open_folder(resolve(what)).config.special.start if what else tokenizer.target.special.get("bos")
    if start is None:
        raise ConfigError("C004", f"model.from = {what} does not say which token its decoder starts from")
    return start


def text_tokenizer(folder: Path, data: DataConfig, texts: Iterable[str]) -> Tokenizer:
    """A vocabulary of texts that end with an end token; trained once per run and kept with it."""
    if not (folder / "tokenizer.json").exists():
        train_ending_tokenizer(data, texts).save(folder)
    return load_tokenizer(folder)


def train_ending_tokenizer(data: DataConfig, texts: Iterable[str]) -> Tokenizer:
    """A tokenizer that puts an end token after each text."""
    from tokenizers.processors import TemplateProcessing

    size = data.vocab or DEFAULT_VOCAB_SIZE.get(data.tokenizer, 0)
    lines = (f"{text}\n" for text in texts)
    made = train_tokenizer(data.tokenizer, lines, size, lower=data.lower, special=MARKS)
    end = MARKS[2]
    made.backend.post_processor = TemplateProcessing(
        single=["$A", end], pair=["$A", end, "$B:1", f"{end}:1"], special_tokens=[(end, made.special["eos"])]
    )
    return made


def read_targets(tokenizer: Tokenizer, texts: Sequence[str], limit: int | None) -> Examples:
    """Texts as a decoder learns to write them: with an end token, unless they are cut."""
    writes = tokenizer.target
    targets: list[list[int]] = []
    end = writes.special.get("eos")
    for text in writes.encode_batch(texts):
        targets.append(text.ids if end is None or text.ids[-1:] == [end] else [*text.ids, end])
    types = [[0] * len(ids[:limit]) for ids in targets]
    return Examples([ids[:limit] for ids in targets], types, whole=[len(ids) for ids in targets])


def decoder_tensors(labels: Tensor, real: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """What the decoder reads (N, T), one token later than what it is to predict."""
    inputs = torch.cat([torch.full((len(labels), 1), start), labels[:, :-1]], 1)
    return inputs, labels.masked_fill(~real, IGNORE)


def pair_loss(label_smoothing: float, r_drop: float = 0.0) -> Callable[..., Tensor]:
    """Of a model and a batch's tensors: the sum over the target tokens; with `r_drop`, of two passes that agree.

    Padding comes after a target and is causally out of sight: the decoder needs no mask for it.
    """

    def loss(model: Model, source: Tensor, attention_mask: Tensor | None, inputs: Tensor, targets: Tensor) -> Tensor:
        total, _ = token_loss(
            model.lm, model(source, inputs, attention_mask=attention_mask).hidden, targets, label_smoothing
        )
        return total

    def with_r_drop(
        model: Model, source: Tensor, attention_mask: Tensor | None, inputs: Tensor, targets: Tensor
    ) -> Tensor:
        source, inputs = (torch.cat([t, t]) for t in (source, inputs))
        attention_mask = None if attention_mask is None else torch.cat([attention_mask, attention_mask])
        total, _ = r_drop_loss(
            model.lm, model(source, inputs, attention_mask=attention_mask).hidden, targets, label_smoothing, r_drop
        )
        return total

    return with_r_drop if r_drop else loss


def assessed(
    pairs: Sequence[Pair], written: Sequence[str], found: Sequence[Metric], sizes: Sequence[int], cut: int, bad: int
) -> Evaluation:
    """Metrics of texts that were written, with intervals, by size of the input, and text by text."""
    parts, first = min(MOST_PARTS, max(QUARTERS, len(pairs) // PART)), found[0]
    scores = [first.some(np.array([i])) for i in range(len(pairs))]
    each = [
        {"line": pair.line, "source": pair.source, "new": text, "targets": list(pair.targets), "score": score}
        for pair, text, score in zip(pairs, written, scores, strict=True)
    ]
    details = {
        "cut": cut,
        "bad_rows": bad,
        "signatures": {m.name: m.signature for m in found},
        "slices": by_size(sizes, lambda rows: {m.name: m.some(rows) for m in found[:2]}, parts),
    }
    return Evaluation(len(pairs), {m.name: m.interval() for m in found}, details, each, first)
