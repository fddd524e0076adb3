"""Training: the heavy half of a task for the trainer. Data to batches, batches to a loss, a model to metrics."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from torch import Tensor

from headway.config.networks.kinds import AnyConfig
from headway.data.batching.batch_sampler import BatchSampler
from headway.data.batching.permutation import Index
from headway.data.datasets.text import Corpus, train_or_load_tokenizer
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task

MOST_WORDS, MOST_LETTERS, SEARCHED = 8, 80, 400
"""The words and letters of an example that are worth typing, and the letters that are searched for them."""

T = TypeVar("T")
Part = TypeVar("Part")


def run_now(make: Callable[[], T]) -> T:
    """The single-process form of `TaskContext.rank_zero_first`."""
    return make()


@dataclass(frozen=True)
class TaskContext:
    """What a training is made from."""

    recipe: Recipe
    folder: Path
    """Where a run keeps what it made from the data, above all a tokenizer."""
    base: Tokenizer | None = None
    """The tokenizer of model.from."""
    rank_zero_first: Callable[[Callable[[], Any]], Any] = run_now
    """Calls a function in the first process before the others, which then find its results in a cache."""

    def tokenizer(self, texts: Corpus, *, causal: bool = False) -> Tokenizer:
        """The tokenizer of model.from, or one of the run's own that is trained on `texts`."""
        make = partial(train_or_load_tokenizer, self.folder, self.recipe.data, texts, causal=causal)
        return self.base or cast(Tokenizer, self.rank_zero_first(make))

    def about(self, digest: str, bad: BadRows) -> dict[str, Any]:
        """Facts about where the data come from; `digest` is of the files, or of what was made up."""
        data = self.recipe.data
        return {"train": data.train, "valid": data.valid, "fingerprint": digest, "bad_rows": bad.count}


class Training(ABC):
    """Samples are numbered over all epochs; their order is a pure function of the recipe's seed."""

    recipe: Recipe
    tokenizer: Tokenizer | None
    """Saved with the model; None where inputs are no text."""
    primary_metric: ClassVar[str] = "valid"
    """The metric of `evaluate` that tells the best checkpoint."""
    higher_is_better: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def prepare(cls, context: TaskContext) -> Training:
        """Read the data of a recipe."""

    @property
    def static_shapes(self) -> bool:
        """Whether all batches have the same shape."""
        return False

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts about the data for the log; `samples`, `tokens` and `valid_tokens` are always among them."""

    guesser: ClassVar[str] = "a model that ignores its input"
    """Whose metrics `chance` has."""

    @property
    def chance(self) -> dict[str, float]:
        """Metrics of `evaluate` for a model that has learned nothing; empty if nobody knows.

        A run that scores no better has learned nothing: its report says so.
        """
        return {}

    @abstractmethod
    def config(self, base: AnyConfig | None) -> AnyConfig:
        """The model to train: the recipe's shape, or `base` (model.from), with the heads of this task."""

    @abstractmethod
    def plan(self, batch: int) -> BatchSampler:
        """Which samples a step takes."""

    @abstractmethod
    def batch(self, samples: Index) -> Batch:
        """The samples with these numbers. Called from any thread."""

    @property
    @abstractmethod
    def loss(self) -> Callable[..., Any]:
        """A function of the model and a batch's tensors: the summed loss. It is compiled, so it has no state.

        Where `carry` has tensors, they follow those of the batch, and the function returns (loss, the next carry).
        """

    def wanted(self, batch: Batch) -> Tensor | None:
        """(B, T) The token or label that the loss wants at each token that is read last, IGNORE where it wants none.

        None where the loss is not about tokens one by one. People see by it which tokens count.
        """
        return None

    def carry(self, model: Model) -> tuple[Tensor, ...]:
        """What a batch hands to the next one, as it is before the first: the state of a recurrent network, rows first.

        Checkpoints hold it. Empty: batches do not depend on each other.
        """
        return ()

    def initialise(self, model: Model) -> None:
        """Set weights of a new model that follow from the data, before the first step."""
        return

    by_gradient: ClassVar[bool] = True
    """Whether gradients change the weights; if not, `update` does, in one process."""

    def update(self, model: Model, tensors: Sequence[Tensor | None], lr: float) -> float:
        """A step without gradients: change the weights by a batch, and return the summed loss before it."""
        raise NotImplementedError

    def after_step(self, model: Model, share: float, world: ProcessGroup) -> None:
        """Change weights that no gradient changes, such as a teacher's; `share` of the budget is spent."""
        return

    def after_evaluation(self, model: Model, metrics: Mapping[str, float]) -> None:
        """Change how a model is trained from here on, by its metrics on the validation data."""
        return

    @abstractmethod
    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        """Metrics on the validation data, with the loss as `valid`; the same in every process."""

    @cached_property
    def test_part(self) -> Any:
        """The examples of data.test, or None. A run reads them before its first step, so mistakes cost nothing."""
        return self.read_test(source) if (source := self.recipe.data.test) else None

    @cached_property
    def bad_tests(self) -> BadRows:
        """Rows of data.test that cannot be used."""
        return BadRows(self.recipe.data.bad_rows)

    @abstractmethod
    def read_test(self, source: str) -> Any:
        """Examples of a file to test on, as `evaluate_examples` takes them; `bad_tests` counts bad rows."""

    @abstractmethod
    def evaluate_examples(self, model: Model, part: Any, world: ProcessGroup) -> dict[str, float]:
        """Metrics on such examples, with the loss as `valid`."""

    def test(self, model: Model, world: ProcessGroup) -> dict[str, float] | None:
        """Metrics on data.test, with the loss as `test`; None without test data."""
        if self.test_part is None:
            return None
        result = self.evaluate_examples(model, self.test_part, world)
        return {"test": result.pop("valid"), **result}

    def details(self, model: Model) -> dict[str, Any] | None:
        """The full evaluation of a finished run on its test data, or else its validation data."""
        return None

    @property
    def tries(self) -> list[str]:
        """Words for `headway run MODEL` with a held-out example; empty: those that the task states for all data."""
        return []

    @abstractmethod
    def sample(self, model: Model) -> str:
        """A held-out example and what the model predicts, for a person to read during training."""

    def picture(self, model: Model) -> bytes | None:
        """The same as the bytes of a PNG file, where there is something to see."""
        return None

    @property
    def model_files(self) -> dict[str, Any]:
        """Further files of the model's folder, name → JSON: what was learned from the data before there was a model."""
        return {}

    @classmethod
    def evaluate_file(cls, model: Model, tokenizer: Tokenizer, recipe: Recipe, source: str) -> Evaluation:
        """The full evaluation of a trained model on a file, or without one on what its run held out."""
        raise DataError("D001", f"a model for {recipe.task} is not evaluated on a file of its own")


def short_text(texts: Iterable[str]) -> str:
    """The first words of the first text that a command line takes for a text; empty if there is none."""
    found = (re.search(r"\w[^\n=]*", text[:SEARCHED]) for text in texts)
    return next((" ".join(match[0].split()[:MOST_WORDS])[:MOST_LETTERS] for match in found if match), "")


def make_training(context: TaskContext) -> Training:
    """The training of a recipe, with its data read."""
    return get_task(context.recipe.task).load_training().prepare(context)


class ScoredTraining(Training, Generic[Part]):
    """A training whose validation and test data are evaluated alike: briefly during training, in full at the end."""

    @property
    @abstractmethod
    def valid_part(self) -> Part:
        """The validation examples."""

    @abstractmethod
    def loss_and_metrics(self, model: Model, part: Part, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        """The mean loss and the metrics of examples; the same in every process."""

    @abstractmethod
    def evaluate_in_full(self, model: Model, part: Part) -> Evaluation:
        """The full evaluation of examples."""

    def evaluate(self, model: Model, world: ProcessGroup) -> dict[str, float]:
        return self.evaluate_examples(model, self.valid_part, world)

    def evaluate_examples(self, model: Model, part: Part, world: ProcessGroup) -> dict[str, float]:
        loss, metrics = self.loss_and_metrics(model, part, world)
        return {"valid": loss, **metrics}

    def details(self, model: Model) -> dict[str, Any] | None:
        tested = self.test_part
        name, part = ("valid", self.valid_part) if tested is None else ("test", tested)
        return {"data": name, "source": getattr(self.recipe.data, name), **self.evaluate_in_full(model, part).as_dict()}
