"""One vector a text, learned from pairs that belong together. Letters: N pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.padding import Examples
from headway.data.batching.permutation import Index
from headway.data.datasets.pairs import TextPairs, read_pairs
from headway.data.datasets.text import HELD_OUT, Corpus
from headway.data.files.digest import fingerprint
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, counted
from headway.model.model import Model, evaluating
from headway.tasks.backbone import encoder_backbone
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.embedding.task import Settings
from headway.tasks.embedding.vectors import found_at, nearest, read_texts, vector, vectors
from headway.tasks.metrics.bootstrap import Evaluation, Interval, interval, mean_interval, mean_metric
from headway.tasks.metrics.classification import spearman
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext, Training, short_text

WITHIN = (1, 5, 10)
"""Ranks at which recall is counted."""
EVAL_PAIRS = 64
"""Pairs that are set against each other for the validation loss."""


class Read(NamedTuple):
    """Pairs as a model reads them."""

    first: Examples
    second: Examples
    names: Index
    """(N, 2): equal texts have equal numbers."""
    scores: NDArray[np.float32] | None
    """From 0 to 1."""


@dataclass(frozen=True)
class EmbeddingTraining(Training):
    """Texts close to those they belong with, and far from the others of the batch (van den Oord et al. 2018).

    A pair's negatives are the batch it is computed with: train.accumulate and more processes make them fewer. Where
    the data have scores, the cosine learns those instead (Reimers & Gurevych 2019), and nothing else of the batch
    matters.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    train: TextPairs
    valid: TextPairs
    about: dict[str, Any] = field(default_factory=dict)
    """Where the texts came from."""

    @classmethod
    def prepare(cls, context: TaskContext) -> EmbeddingTraining:
        data, bad = context.recipe.data, BadRows(context.recipe.data.bad_rows)
        if context.recipe.train.batch_tokens:
            raise ConfigError("C004", "task embed compares as many pairs in every step: train.batch, not batch_tokens")
        train = read_pairs(data.train, data, bad)
        train, valid = (train, read_pairs(data.valid, data, bad)) if data.valid else hold_out(train)
        if len(train) < 1 or (train.scores is None) != (valid.scores is None):
            raise DataError(
                "D002",
                f"{counted(len(train), 'pairs')} to train on, {len(valid)} to validate on: give both, scored alike",
            )
        texts = Corpus(lambda: iter([*train.first, *train.second]), "", False)
        tokenizer = context.tokenizer(texts)
        key = fingerprint(data.train) if data.train else ""
        return cls(context.recipe, tokenizer, train, valid, context.about(key, bad))

    @property
    def facts(self) -> dict[str, Any]:
        train, valid = self._train, self._valid
        return {
            **self.about,
            "samples": len(self.train),
            "tokens": int(train.first.lengths.sum() + train.second.lengths.sum()),
            "vocab": self.tokenizer.vocab_size,
            "valid_samples": len(self.valid),
            "valid_tokens": int(valid.first.lengths.sum() + valid.second.lengths.sum()),
            "cut": sum(int((read.first.truncated | read.second.truncated).sum()) for read in (train, valid)),
            "length_99": max(train.first.length_99, train.second.length_99),
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        """Of vectors that have nothing to do with the texts."""
        count, scores = len(self.valid), self._valid.scores
        if scores is not None:
            return {"valid": float(scores.var()), "spearman": 0.0}
        parts = -(-count // EVAL_PAIRS)
        recall = {f"recall_{k}": min(1.0, k / count) for k in WITHIN}
        return {
            "valid": math.log(max(1.0, count / parts)),
            "mrr": sum(1 / k for k in range(1, count + 1)) / count,
        } | recall

    @cached_property
    def _train(self) -> Read:
        return self._read(self.train)

    @cached_property
    def _valid(self) -> Read:
        return self._read(self.valid)

    def _read(self, pairs: TextPairs) -> Read:
        limit, seed = self.recipe.data.length, self.recipe.seed
        first, second = (read_texts(self.tokenizer, texts, limit, seed) for texts in (pairs.first, pairs.second))
        number: dict[str, int] = {}
        both = zip(pairs.first, pairs.second, strict=True)
        names = [[number.setdefault(text, len(number)) for text in texts] for texts in both]
        scores = None
        if pairs.scores is not None and self.train.scores is not None:
            low, high = min(self.train.scores), max(self.train.scores)  # as trained, whatever is read
            scores = ((np.array(pairs.scores) - low) / (high - low or 1.0)).astype(np.float32)
        return Read(first, second, np.array(names), scores)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        """The body alone: vectors are its own outputs."""
        return encoder_backbone(self.recipe, self.tokenizer, base)

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.train), batch)

    def batch(self, samples: Index) -> Batch:
        return pair_batch(self._train, self._train.first.rows(samples))

    @property
    def loss(self) -> Callable[..., Tensor]:
        return pair_loss(self.recipe.settings)

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        return self.evaluate_examples(model, self._valid, world)

    def read_test(self, spec: str) -> Read:
        return self._read(read_pairs(spec, self.recipe.data, self.bad_tests))

    def evaluate_examples(self, model: Model, part: Read, world: ProcessGroup) -> dict[str, float]:
        """Every process reads all: a pair's rank is among all pairs."""
        loss, count = self.loss, len(part.names)
        with evaluating(model):
            parts = np.array_split(np.arange(count), -(-count // EVAL_PAIRS))
            total = sum(float(loss(model, *pair_batch(part, rows).to(world.device))) for rows in parts)
            u, v = (vectors(model, side, self.recipe.settings.pool) for side in (part.first, part.second))
        return {"valid": total / count, **{name: f[0] for name, f in pair_metrics(u, v, part, draws=1).items()}}

    @property
    def tries(self) -> list[str]:
        return [short_text(self.valid.first)]

    def sample(self, model: Model) -> str:
        """A held-out text and those it finds."""
        found = nearest(model, self.tokenizer, self.valid.first[0], self.valid.second, 3, self.recipe.settings.pool)
        lines = [f"{near.cosine:.2f}  {near.text}" for near in found]
        return "\n".join([self.valid.first[0], *lines])

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """Spearman's correlation with the scores of a file, or how well each text finds the one it belongs to.

        Without a spec, on what the run has not learned from.
        """
        data, bad = recipe.data, BadRows(recipe.data.bad_rows)
        spec = spec or data.test or data.valid
        pairs = read_pairs(spec, data, bad) if spec else hold_out(read_pairs(data.train, data, bad))[1]
        read = EmbeddingTraining(recipe, tokenizer, pairs, pairs)._valid
        u, v = (vectors(model, side, recipe.settings.pool) for side in (read.first, read.second))
        cosines = (u * v).sum(1).tolist()
        metrics = pair_metrics(u, v, read)
        first = None if read.scores is not None else mean_metric("mrr", 1 / found_at(u, v, read.names[:, 1]))
        return Evaluation(len(pairs), metrics, {"bad_rows": bad.count}, cosines, first)


def hold_out(pairs: TextPairs) -> tuple[TextPairs, TextPairs]:
    """The first of them to train on, the last to validate on."""
    kept = min(len(pairs) - 1, round(len(pairs) * (1 - HELD_OUT)))
    return pairs.part(slice(kept)), pairs.part(slice(kept, None))


def pair_batch(read: Read, rows: Index) -> Batch:
    """Both sides of some pairs, their names and, where there are any, their scores."""
    (ids, attention_mask, _), (other, other_attention_mask, _) = read.first.read(rows), read.second.read(rows)
    scores = None if read.scores is None else torch.from_numpy(read.scores[rows])
    tensors = (ids, attention_mask, other, other_attention_mask, torch.from_numpy(read.names[rows]), scores)
    return Batch(tensors, len(rows), int(attention_mask.sum() + other_attention_mask.sum()))


def pair_loss(config: Settings) -> Callable[..., Tensor]:
    """Of a model and a batch's tensors: the sum over its pairs."""

    def loss(
        model: Model,
        ids: Tensor,
        attention_mask: Tensor,
        other: Tensor,
        other_attention_mask: Tensor,
        names: Tensor,
        scores: Tensor | None,
    ) -> Tensor:
        u, v = vector(model, ids, attention_mask, config.pool), vector(model, other, other_attention_mask, config.pool)
        with torch.autocast(u.device.type, enabled=False):  # differences of cosines are small
            if scores is not None:
                return F.mse_loss((u * v).sum(1), scores, reduction="sum")
            cosines = (u @ v.T) / config.temperature
            same = (names[:, None] == names[None]).any(-1)  # another pair with one of these texts is no negative
            own = torch.arange(len(u), device=u.device)
            cosines = cosines.masked_fill(same & (own[:, None] != own), -torch.inf)
            forth = F.cross_entropy(cosines, own, reduction="sum")
            if not config.symmetric:
                return forth
            return (forth + F.cross_entropy(cosines.T, own, reduction="sum")) / 2

    return loss


def pair_metrics(u: Tensor, v: Tensor, read: Read, draws: int = 1000) -> dict[str, Interval]:
    """Spearman's correlation with the scores, or how far up each text finds the one it belongs to; with intervals."""
    if read.scores is not None:
        cosines, gold = (u * v).sum(1).double().numpy(), read.scores.astype(np.float64)
        return {"spearman": interval(lambda chosen: spearman(cosines[chosen], gold[chosen]), len(gold), draws=draws)}
    rank = found_at(u, v, read.names[:, 1])
    metrics = {"mrr": mean_interval(1 / rank, draws=draws)}
    return metrics | {f"recall_{k}": mean_interval((rank <= k).astype(np.float64), draws=draws) for k in WITHIN}
