"""The simplest kind of task: a list of examples in memory, each of them one sample.

A subclass of `ExampleTraining` says how to read, collate and predict; trainer, verbs and server need no more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from headway.data.batching.batch_sampler import BatchSampler, FixedBatchSampler
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.lines import read_as
from headway.data.files.rows import BadRows
from headway.model.model import Model, evaluating
from headway.progress import track
from headway.tasks.base import Json
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Predictor
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task
from headway.tasks.training import ScoredTraining, TaskContext

E = TypeVar("E")
HELD_OUT = 10
"""Without data.valid, every so-many-th example is held out for validation."""
SAMPLES = 4
BATCH = 64
"""Examples that are evaluated at a time."""


class ExampleTraining(ScoredTraining[Sequence[E]], Generic[E]):
    """Examples in memory. The static methods need no training data, so that a predictor shares them."""

    tokenizer = None

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.bad, data = recipe, BadRows(recipe.data.bad_rows), recipe.data
        read = self.read(recipe, data.train, self.bad)
        self.held_out = self.read(recipe, data.valid, self.bad) if data.valid else read[::HELD_OUT]
        self.examples = read if data.valid else [example for i, example in enumerate(read) if i % HELD_OUT]

    @classmethod
    def prepare(cls, context: TaskContext) -> ExampleTraining[E]:
        return cls(context.recipe)

    @staticmethod
    @abstractmethod
    def read(recipe: Recipe, source: str, bad: BadRows) -> Sequence[E]:
        """The examples of a file, with targets; without a file, made-up ones."""

    @staticmethod
    @abstractmethod
    def collate(examples: Sequence[E]) -> Batch:
        """A batch of examples."""

    @staticmethod
    @abstractmethod
    def predict(model: Model, examples: Sequence[E]) -> list[Any]:
        """A `Prediction` for each example."""

    @staticmethod
    @abstractmethod
    def assess(examples: Sequence[E], predictions: Sequence[Any]) -> Evaluation:
        """How good predictions are."""

    @staticmethod
    @abstractmethod
    def tokens(examples: Sequence[E]) -> int:
        """Tokens, patches or frames that a model reads of examples."""

    @property
    def facts(self) -> Json:
        return {
            **{"train": self.recipe.data.train, "valid": self.recipe.data.valid, "bad_rows": self.bad.count},
            **{"samples": len(self.examples), "tokens": self.tokens(self.examples)},
            **{"valid_samples": len(self.held_out), "valid_tokens": self.tokens(self.held_out)},
        }

    @property
    def valid_part(self) -> Sequence[E]:
        return self.held_out

    def read_test(self, source: str) -> Sequence[E]:
        return self.read(self.recipe, source, self.bad_tests)

    def plan(self, batch: int) -> BatchSampler:
        return FixedBatchSampler(len(self.examples), batch)

    def batch(self, samples: Index) -> Batch:
        order = shuffle_samples(samples, len(self.examples), self.recipe.seed)
        return self.collate([self.examples[i] for i in order])

    def loss_and_metrics(self, model: Model, part: Sequence[E], world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """Every process evaluates all examples, so that all have the same metrics."""
        total, count = 0.0, 0.0
        with evaluating(model):
            for at in track(range(0, len(part), BATCH), "evaluating", unit="batches"):
                batch = self.collate(part[at : at + BATCH])
                total, count = total + float(self.loss(model, *batch.to(world.device))), count + batch.count
            metrics = self.evaluate_in_full(model, part).metrics
        return total / count, {name: value for name, (value, _, _) in metrics.items()}

    def evaluate_in_full(self, model: Model, part: Sequence[E]) -> Evaluation:
        return self.assess(part, self.predict(model, part))

    def sample(self, model: Model) -> str:
        examples = self.held_out[:SAMPLES]
        found = [each.to_dict() for each in self.predict(model, examples)]
        task = get_task(self.recipe.task)
        return "\n".join(task.render(list(zip(examples, found, strict=True)), colours=False))


class ExamplePredictor(Predictor[Any, Any]):
    """The predictor of an `ExampleTraining`."""

    training: ClassVar[type[ExampleTraining[Any]]]

    def predict(self, examples: Sequence[Any]) -> list[Any]:
        return self.training.predict(self.model, examples)

    def examine(self, source: str) -> Evaluation:
        with read_as(self.recipe.data.encoding):
            if source := source or self.recipe.data.test or self.recipe.data.valid:
                examples = self.training.read(self.recipe, source, BadRows(self.recipe.data.bad_rows))
            else:
                examples = self.training(self.recipe).held_out
        return self.training.assess(examples, self.predict(examples))
