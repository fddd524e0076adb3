"""MemoryTraining: a model learns to answer questions about stories. Letters: B questions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.baselines.memory import MemoryNetwork
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.memory import MemoryConfig
from headway.config.shape import memory_config
from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index, shuffle_samples, splitmix64
from headway.data.datasets.stories import read_stories, story_files
from headway.data.files.lines import read_as
from headway.data.files.rows import BadRows
from headway.errors import ConfigError
from headway.hub.download import resolve
from headway.hub.folder import open_folder
from headway.joint.memory import MemoryModel, StoryTensors
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.evaluate import probabilities
from headway.tasks.memory.data import Part, StoryData, collate, make_part, read_data
from headway.tasks.memory.evaluate import evaluate_part, metrics_of, one_of_each, right
from headway.tasks.memory.predict import answered, logits_of, memory_model, read_part
from headway.tasks.memory.task import Memory
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.chance import constant_logits
from headway.tasks.metrics.classification import Numbers
from headway.tasks.recipe import Recipe
from headway.tasks.training import ScoredTraining, TaskContext


@dataclass(frozen=True)
class MemoryTraining(ScoredTraining[Part]):
    """Questions about stories, each with one answer."""

    recipe: Recipe
    data: StoryData
    tokenizer = None
    primary_metric = "error"

    @classmethod
    def prepare(cls, context: TaskContext) -> MemoryTraining:
        recipe = context.recipe
        if recipe.settings.linear_start and (recipe.train.ema or recipe.train.average):
            why = "averages of weights would mix those with and without a softmax"
            what = f"memory.linear_start = {recipe.settings.linear_start}"
            raise ConfigError("C004", f"{what} conflicts with train.ema and train.average: {why}")
        with read_as(recipe.data.encoding):
            return cls(recipe, read_data(recipe))

    @cached_property
    def own_config(self) -> MemoryConfig:
        """Of a new model."""
        recipe = self.recipe
        return memory_config(recipe.model, recipe.settings, self.data.source, self.data.labels)

    def config(self, base: AnyConfig | None) -> AnyConfig:
        return self.own_config if base is None else _base_config(base, self.data, self.recipe)

    @cached_property
    def read_config(self) -> MemoryConfig:
        """The config by which stories become numbers."""
        if not self.recipe.model.from_:
            return self.own_config
        return _base_config(open_folder(resolve(self.recipe.model.from_)).config, self.data, self.recipe)

    @cached_property
    def train(self) -> Part:
        """The questions that are learned from."""
        return self.data.part("train", self.read_config)

    @cached_property
    def valid_part(self) -> Part:
        return self.data.part("valid", self.read_config)

    @cached_property
    def test_part(self) -> Part | None:
        """The questions of data.test, or of the files beside those of training that are called so."""
        if source := self.recipe.data.test:
            return self.read_test(source)
        return self.data.part("test", self.read_config) if "test" in self.data.split else None

    def read_test(self, source: str) -> Part:
        return read_file(self.read_config, source, self.bad_tests)

    @property
    def facts(self) -> dict[str, Any]:
        train, valid = self.train, self.valid_part
        asked = [(story.question, story.label, len(story.told)) for story in train.stories]
        return {
            **{"train": self.recipe.data.train, "valid": self.recipe.data.valid, "bad_rows": self.data.bad.count},
            "fingerprint": hashlib.sha256(repr(asked).encode()).hexdigest(),
            **{"samples": len(train), "tokens": train.tokens},
            **{"valid_samples": len(valid), "valid_tokens": valid.tokens},
            "tasks": len(set(train.kinds)),
            "words": len(self.read_config.source.words),
            "answers": len(self.read_config.labels),
            "most_sentences": max(len(story.told) for story in train.stories),
        }

    @cached_property
    def chance(self) -> dict[str, float]:
        part = self.valid_part
        logits = np.tile(constant_logits("single", part.truth[part.truth >= 0], len(self.data.labels)), (len(part), 1))
        return {"valid": _mean_loss(logits, part), **metrics_of(right(logits, part.truth), part.kinds)}

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.train), min(batch, len(self.train)))

    def batch(self, samples: Index) -> Batch:
        train, recipe = self.train, self.recipe
        rows = shuffle_samples(samples, len(train), recipe.seed)
        transformer = self.read_config.encoder is not None
        keys = splitmix64(np.uint64(recipe.seed & (2**64 - 1))) ^ splitmix64(samples.astype(np.uint64))
        inputs, stories = collate(train, rows, transformer=transformer, noise=recipe.settings.noise, keys=keys)
        read = int(train.lengths[train.memories[rows]].sum() + train.lengths[train.questions[rows]].sum())
        return Batch((inputs, *stories, torch.from_numpy(train.truth[rows])), float(len(rows)), read)

    @property
    def loss(self) -> Callable[..., Tensor]:
        def loss(model: MemoryModel, inputs: Tensor, *rest: Tensor) -> Tensor:
            return F.cross_entropy(logits_of(model, inputs, StoryTensors(*rest[:-1])), rest[-1], reduction="sum")

        return loss

    def after_step(self, model: Model, share: float, world: ProcessGroup) -> None:
        """The softmax comes back when its share of the budget is spent."""
        if share >= self.recipe.settings.linear_start:
            self._end_linear_start(model)

    def after_evaluation(self, model: Model, metrics: Mapping[str, float]) -> None:
        """The softmax comes back when the validation loss does not fall any more."""
        if not isinstance(model, MemoryNetwork) or model.linear is None or model.linear.item() == 0:
            return
        if metrics["valid"] < model.linear.item():
            model.linear.data.fill_(max(metrics["valid"], 1e-9))  # 0 would be the end
        else:
            self._end_linear_start(model)

    def _end_linear_start(self, model: Model) -> None:
        if isinstance(model, MemoryNetwork) and model.linear is not None:
            model.linear.data.zero_()

    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """Every process evaluates all questions, so that all have the same metrics."""
        logits = read_part(memory_model(model), part, hops=False).logits
        return _mean_loss(logits, part), metrics_of(right(logits, part.truth), part.kinds)

    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        return _evaluated(memory_model(model), part, self.data.bad.count)

    @property
    def tries(self) -> list[str]:
        story = min(self.valid_part.stories, key=lambda story: len(story.shown) if len(story.told) > 1 else 1 << 20)
        return [story.shown]

    def sample(self, model: Model) -> str:
        """A held-out question that needs several sentences, where the data say so, and where the hops look."""
        part = self.valid_part
        row = max(one_of_each(part) or [0], key=lambda row: len(part.stories[row].support))
        read = read_part(memory_model(model), part, np.array([row]))
        chances = probabilities("single", read.logits)[0]
        found = answered(part.stories[row], self.read_config.labels, chances, read.hops[0], 1).to_dict()
        lines = Memory().render([(part.stories[row], found)], colours=False)
        return "\n".join([part.stories[row].question, *lines])


def _base_config(base: AnyConfig, data: StoryData, recipe: Recipe) -> MemoryConfig:
    """The config of model.from, which has to know the words and answers of the data."""
    if not isinstance(base, MemoryConfig):
        raise ConfigError("C004", f"task memory trains models of stories, model.from = {recipe.model.from_} is none")
    if strange := sorted(set(data.labels) - set(base.labels)):
        what = f"model.from = {recipe.model.from_} does not know the answer {strange[0]!r}"
        raise ConfigError("C004", what, "train a new model: leave model.from out")
    return replace(base, linear_start=False) if base.linear_start else base


def _mean_loss(logits: Numbers, part: Part) -> float:
    """Over the questions whose answers training has."""
    known = part.truth >= 0
    if not known.any():
        return float("nan")
    return float(F.cross_entropy(torch.from_numpy(logits[known]).float(), torch.from_numpy(part.truth[known])))


def _evaluated(model: MemoryModel, part: Part, bad: int) -> Evaluation:
    return evaluate_part(part, read_part(model, part), model.config.labels, bad, one_of_each(part))


def read_file(config: MemoryConfig, source: str, bad: BadRows) -> Part:
    """Other questions, of which the model has to know the words."""
    return make_part(read_stories(story_files(source, "test"), source, bad), config, bad, source)


def evaluate_source(model: MemoryModel, recipe: Recipe, source: str) -> Evaluation:
    """On questions of the user's; without a source, on what the run has not learned from."""
    bad = BadRows(recipe.data.bad_rows)
    with read_as(recipe.data.encoding):
        if source := source or recipe.data.test:
            return _evaluated(model, read_file(model.config, source, bad), bad.count)
        data = read_data(recipe)
        part = data.part("test" if "test" in data.split else "valid", model.config)
        return _evaluated(model, part, data.bad.count)
