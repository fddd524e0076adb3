"""What a task is to the trainer: data to batches, batches to a loss, a model to figures; and what it is made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from headway.config.baselines import AnyConfig
from headway.config.recipe import Recipe
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.permutation import Index
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.metrics.bootstrap import Evaluation

T = TypeVar("T")
Part = TypeVar("Part")


def run_now(make: Callable[[], T]) -> T:
    """Where one process works alone, nothing has to wait."""
    return make()


@dataclass(frozen=True)
class TaskContext:
    """What a task is made from."""

    recipe: Recipe
    folder: Path
    """Where a run keeps what it has made of the data: a tokenizer, above all."""
    base: Tokenizer | None = None
    """The tokenizer of model.from."""
    rank_zero_first: Callable[[Callable[[], Any]], Any] = run_now
    """Calls a function in one process first: what that one leaves in a cache, the others find there."""


class Task(ABC):
    """Samples are numbered over all epochs; the order is the task's own, from the recipe's seed."""

    recipe: Recipe
    tokenizer: Tokenizer
    """Saved with the model."""
    primary_metric: ClassVar[str] = "valid"
    """Which figure of `evaluate` tells the best model."""
    higher_is_better: ClassVar[bool] = False
    """Whether more of it is better."""

    @property
    def static_shapes(self) -> bool:
        """Whether all batches have one shape."""
        return False

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What is known of the data, for the log; `samples`, `tokens` and `valid_tokens` are there in any case."""

    @abstractmethod
    def config(self, base: AnyConfig | None) -> AnyConfig:
        """The model to train: by the recipe's shape, or the one that model.from has, with the heads of this task."""

    @abstractmethod
    def plan(self, batch: int) -> BatchSampler:
        """Which samples a step takes."""

    @abstractmethod
    def batch(self, samples: Index) -> Batch:
        """The samples with these numbers; from any thread."""

    @property
    @abstractmethod
    def loss(self) -> Callable[..., Tensor]:
        """Of the model and a batch's tensors: the sum over the predictions that count. Compiled, so without state."""

    @abstractmethod
    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        """Figures on the validation data, `valid` (a loss) among them; the same in every process."""

    @cached_property
    def test_part(self) -> Any:
        """What data.test holds, None without it. A run reads it before its first step: mistakes in it cost nothing."""
        return self.read_test(spec) if (spec := self.recipe.data.test) else None

    @cached_property
    def bad_tests(self) -> BadRows:
        """Rows of data.test that cannot be used."""
        return BadRows(self.recipe.data.bad_rows)

    @abstractmethod
    def read_test(self, spec: str) -> Any:
        """Examples of a file that is not learned from, for `evaluate_examples`; `bad_tests` counts the others."""

    @abstractmethod
    def evaluate_examples(self, model: Model, part: Any, world: ProcessGroup) -> dict[str, float]:
        """Figures on such examples, `valid` among them, as in `evaluate`."""

    def test(self, model: Model, world: ProcessGroup) -> dict[str, float] | None:
        """The same on the test data, with `test` for `valid`; None without them."""
        if self.test_part is None:
            return None
        result = self.evaluate_examples(model, self.test_part, world)
        return {"test": result.pop("valid"), **result}

    def details(self, model: Model) -> dict[str, Any] | None:
        """What else a finished run has to show of its test data, or else its validation data: an Evaluation's."""
        return None

    @abstractmethod
    def sample(self, model: Model) -> str:
        """What the model makes of a held-out example, for a person to look at while it trains."""

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, spec: str) -> Evaluation:
        """How good a finished model is on data of the user's, in full; `recipe` says how they are read."""
        raise DataError("D001", f"a model for {recipe.task} is not evaluated on a file of its own")


class ScoredTask(Task, Generic[Part]):
    """A task whose validation and test data are judged alike: in few figures as it trains, in full when it is done."""

    @property
    @abstractmethod
    def valid_part(self) -> Part:
        """The validation examples as a model reads them."""

    @abstractmethod
    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """The mean loss of examples, and their figures; the same in every process."""

    @abstractmethod
    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        """All that there is to say of them."""

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        return self.evaluate_examples(model, self.valid_part, world)

    def evaluate_examples(self, model: Model, part: Part, world: ProcessGroup) -> dict[str, float]:
        loss, metrics = self.loss_and_metrics(model, part, world)
        return {"valid": loss, **metrics}

    def details(self, model: Model) -> dict[str, Any] | None:
        tested = self.test_part
        name, part = ("valid", self.valid_part) if tested is None else ("test", tested)
        return {"data": name, "source": getattr(self.recipe.data, name), **self.evaluate_in_full(model, part).as_dict()}
