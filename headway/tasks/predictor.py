"""A predictor: a trained model used for its task. The heavy half of a task for `run`, `eval`, the server and Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from headway.config.recipe import DataConfig
from headway.data.files.lines import read_as
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.sampling.sampler import Sampling
from headway.hub.generation_config import GenerationSettings
from headway.model.model import Model
from headway.tasks.base import Json, Task
from headway.tasks.inputs import Item, reject
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe

LONGEST = 512
"""Tokens of an input for a model without a limit of its own, where no recipe says how many."""
DIGITS = 6
"""Decimals of probabilities in results; the digits after them depend on which inputs share a batch."""


class Loaded(Protocol):
    """A trained model with what belongs to it, as `headway.load` gives it."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> Model: ...
    @property
    def tokenizer(self) -> Tokenizer | None: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def recipe(self) -> Recipe | None: ...
    @property
    def named_task(self) -> str: ...
    @property
    def generation(self) -> GenerationSettings: ...
    def require_tokenizer(self) -> Tokenizer: ...


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a caller asks for beside the inputs. A task names those it takes in `Task.options`."""

    top: int = 5
    """Alternatives that are shown: words for a blank, answers, neighbours."""
    n_best: int = 1
    """Hypotheses of a beam search that are returned."""
    beam: int = 0
    """Beam width; 0: as the recipe says."""
    align: bool = False
    """Which source word each target word came from."""
    labels: tuple[str, ...] = ()
    """Texts to choose among for each image."""
    score: bool = False
    """The log-probability of each input instead of a prediction."""
    language: str = ""
    """The language that is spoken; empty: the model detects it."""
    words: bool = False
    """When each word was said."""
    horizon: int | None = None
    """Time steps to predict; None: as the model was trained."""
    sampling: Sampling | None = None
    """How a language model generates; None: as its folder says."""


class Prediction(Protocol):
    """What a model says of one example."""

    def to_dict(self) -> Json:
        """Plain values for JSON: the same on the command line, in a file of results and from the server."""
        ...


E = TypeVar("E")
P = TypeVar("P", bound=Prediction)


class Predictor(ABC, Generic[E, P]):
    """Examples to predictions, and predictions to an evaluation."""

    task: ClassVar[Task]

    def __init__(self, loaded: Loaded, recipe: Recipe | None = None, options: RunOptions | None = None) -> None:
        self.loaded, self.model = loaded, loaded.model
        self.recipe = recipe if recipe is not None else self.default_recipe(loaded)
        self.options = options or RunOptions()

    @property
    def tokenizer(self) -> Tokenizer:
        return self.loaded.require_tokenizer()

    @classmethod
    def default_recipe(cls, loaded: Loaded) -> Recipe:
        """How inputs are read: as in the run that trained the model, or else by what the model's folder says."""
        if loaded.recipe is not None and loaded.recipe.task == cls.task.name:
            return loaded.recipe
        return Recipe(task=cls.task.name, data=DataConfig(length=loaded.model.config.max_length or LONGEST))

    @abstractmethod
    def predict(self, examples: Sequence[E]) -> list[P]:
        """One prediction for each example, the same as if the example were alone."""

    def truncated(self, examples: Sequence[E]) -> tuple[int, int]:
        """How many of the examples are longer than the model reads, and how many tokens it reads."""
        return 0, 0

    def examine(self, source: str) -> Evaluation:
        """The model on a file of examples with targets; without a file, on what its run held out."""
        with read_as(self.recipe.data.encoding):
            return self.task.load_training().evaluate_file(self.model, self.tokenizer, self.recipe, source)


@dataclass(frozen=True)
class TextScore:
    """How likely a model finds a text."""

    log_probability: float
    tokens: int
    perplexity: float

    def to_dict(self) -> Json:
        return {
            "log_probability": round(self.log_probability, DIGITS),
            "tokens": self.tokens,
            "perplexity": self.perplexity,
        }


def predict_good(
    predictor: Predictor[Any, Any], items: Sequence[Item], bad: BadRows
) -> Iterator[tuple[list[Item], list[Json]]]:
    """The items that the model can use, with their results; if one fails, the items are tried one by one."""
    try:
        found = predictor.predict([item.example for item in items])
    except DataError as error:
        if len(items) == 1:
            reject(Flaw.of(error, items[0].file, items[0].line), bad)
            return
    else:
        yield list(items), [each.to_dict() for each in found]
        return
    for item in items:
        yield from predict_good(predictor, [item], bad)
