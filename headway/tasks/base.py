"""A task, stated once: its name, settings, inputs and looks. This is the light half of a task: no torch here.

A task is one object in one folder, and headway/tasks/registry.py is the only list. Recipes, the command line,
the server, reports and cards ask this object and contain no task's name. A package of your own adds a task through
the entry-point group `headway.tasks`.

The heavy halves are named by strings and imported when they are needed: `Training` (headway/tasks/training.py) makes
batches, losses and evaluations for the trainer; `Predictor` (headway/tasks/predictor.py) uses a trained model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.datasets.parallel import split_pair_spec
from headway.data.files.locate import find_files, skipped_files, skipped_note
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.tasks.inputs import Item, parsed, raw_rows

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey
    from headway.tasks.predictor import Predictor
    from headway.tasks.training import Training

Json = dict[str, Any]
Kind = Literal["text", "image", "sound", "table", "graph", "story", "class"]


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The section of a task that has no settings of its own."""


@dataclass(frozen=True)
class Tries:
    """What to try with a trained model: the words after `headway run last`, and a request for /v1/run."""

    made_up: str
    """Words that fit the made-up data of the task's recipe."""
    own: str = '"…"'
    """Words for a model that was trained on data of the user."""
    request: Mapping[str, Any] | None = None
    """Fields of a request; {mask} stands for the tokenizer's mask token. None: one short text."""


@dataclass(frozen=True)
class Suitability:
    """How likely a file is for a task."""

    confidence: float
    """From 0 to 1."""
    settings: tuple[str, ...] = ()
    """`key=value` words that training needs to read the file."""
    recipe: str = ""
    """The recipe to start from; empty: that of the task."""


@dataclass(frozen=True)
class FineTuning:
    """How a pretrained model is fine-tuned for a task, where nobody says otherwise (headway/tasks/defaults)."""

    lr: float = 1e-4
    """Peak learning rate of a model that is 384 wide."""
    epochs: tuple[float, float] = (3, 20)
    """The fewest and the most epochs, for many and for few examples."""
    longest: int = 512
    """The longest sequence, in tokens; shorter if the data are."""
    around: int = 0
    """Tokens of a sequence beside those of the example itself."""
    batch: int = 0
    """Examples of a batch; 0: by the number of examples."""
    keep_best: bool = False
    """Keep the weights of the best evaluation. Where few examples are held out, the last weights are better."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the task's own section."""


class Task(ABC):
    """One task. Class attributes state what is always true of it; methods take what depends on a file or a model."""

    name: ClassVar[str]
    """The name in recipes (`task = "tag"`), of its section there (`[tag]`), and on the command line."""
    title: ClassVar[str]
    """The field's name for it: "question answering"."""
    noun: ClassVar[str]
    """What training gives: "question-answering model"."""
    pipeline_tag: ClassVar[str] = ""
    """The name that the model hub has for it."""
    takes: ClassVar[Kind] = "text"
    """The kind of input; class: the name of what to draw."""
    learns: ClassVar[str] = ""
    """The kind of data that training reads, where it is not told by `takes`."""
    verb: ClassVar[str] = ""
    """The name in requests to /v1/run, where it differs from `name`."""
    Settings: ClassVar[type] = NoSettings
    """The section of a recipe: a frozen dataclass with a default for every field."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Old names of settings → their current names. Recipes and run folders with old names still load."""
    starter: ClassVar[str] = ""
    """The recipe of headway/recipes to begin with, where it has another name than the task."""
    recipe: ClassVar[str] = ""
    """For a task of another package: the recipe that runs offline on made-up data, as TOML."""
    tries: ClassVar[Tries]
    made_up: ClassVar[str] = "made-up data"
    """What the task learns from where a recipe names no data."""
    made_up_sizes: ClassVar[Mapping[str, Any]] = {}
    """Settings of the starter that fit only what it makes up → their values for data of the user."""
    options: ClassVar[frozenset[str]] = frozenset()
    """Options of `headway run` that the task takes: top, n_best, beam, align, score, context, story, nearest, labels,
    rollout, class, grid, steps, guidance, seed, language, words, format, horizon, plot."""
    formats: ClassVar[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {}
    """Ways to write a result that `headway run --format` and the server offer: name → a function of its dictionary."""
    second: ClassVar[str] = ""
    """The field that brings an input a second text: pair or context."""
    joined: ClassVar[Kind | Literal[""]] = ""
    """The kind of a second input that each example has beside the first: {"input": {"image": …, "sound": …}}."""
    generates: ClassVar[bool] = False
    """Whether its models continue a text: `headway run` then streams, and the server has /v1/completions."""
    evaluates: ClassVar[bool] = True
    """Whether `headway eval` has data of the task's own kind to evaluate on; if not, plain text."""
    predicts_tokens: ClassVar[bool] = False
    """Whether the loss is the cross entropy of tokens of the vocabulary: a report then knows the loss of guessing."""
    loss_tells: ClassVar[bool] = True
    """Whether a lower loss is a better model; if not, a report looks at the primary metric alone."""
    networks: ClassVar[bool] = False
    """Whether the networks before the transformer (model.kind) can be trained for it."""
    carries: ClassVar[bool] = False
    """Whether a batch can go on where the last one ended, with the state of a recurrent network (data.rows)."""
    windows: ClassVar[bool] = False
    """Whether an input that is longer than the model's context is read in windows; others are truncated or refused."""
    fills_rows: ClassVar[bool] = False
    """Whether texts fill sequences end to end, so that data are counted in tokens; others have a sequence each."""
    one_sequence: ClassVar[bool] = True
    """Whether a model reads all texts of an example as one sequence; if not, each is a sequence of its own."""
    fine_tuning: ClassVar[FineTuning] = FineTuning()
    minutes: ClassVar[float] = 10.0
    """The time for which a new model is chosen, if the user gives no budget."""
    training: ClassVar[str]
    predictor: ClassVar[str]
    """The heavy halves, as "package.module:Class"."""

    # --- inputs

    @abstractmethod
    def parse(self, raw: Mapping[str, Any]) -> Any:
        """An example from a row, a JSON body or {"input": argument}. A `DataError` says what is wrong with it."""

    def echo(self, example: Any) -> Json:
        """What a line of results repeats of its input."""
        return {}

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """Examples of a file, glob, folder, hub dataset or pipe, to predict; `bad` takes the rows that are no input.

        For texts: `firm` says that the user named columns, so a missing one is an error; `context` is one second text
        for all inputs.
        """
        yield from parsed(raw_rows(source), self.parse, bad)

    def parse_request(self, raw: Mapping[str, Any]) -> Any:
        """The same for a body that a client sent, which must not name files of this machine."""
        return self.parse(raw)

    def files(self, spec: str) -> list[Path]:
        """Every file of a data spec, in the order in which they are read: a run records their content."""
        return [path for side in split_pair_spec(spec) or (spec,) for path in find_files(side)]

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        """How likely a file is for this task, by what `headway data` found in it and by its first rows."""
        return Suitability(0.0)

    def reads(self, rows: Sequence[Row]) -> bool:
        """Whether rows are surely examples of this task: a model that generates is then scored on them as such."""
        return False

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        """The texts of each example of data.train, to choose a length and a size by; none if a task reads no texts."""
        return iter(())

    def count(self, data: DataConfig) -> int | None:
        """How many examples data.train holds, for a task that reads no texts; None if nobody knows."""
        return None

    def left_out(self, spec: str) -> str:
        """How many files of a folder are no data of this task, and some of their names; empty if there are none."""
        return skipped_note(skipped_files(spec))

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        """Read a file as training would, and count its bad rows. A `DataError`: training could not read it."""
        return

    # --- models

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        """Whether a model with these heads can do this task. `special`: the tokenizer's special tokens, if known."""
        return False

    def wants_second(self, config: AnyConfig) -> bool | None:
        """Whether each input needs a second text; None: it may have one."""
        return None if self.second else False

    # --- looks

    def tabled(self, row: Json) -> Iterable[Json]:
        """The rows of a result in a table: one, but for predictions that are tables themselves."""
        return (row,)

    @abstractmethod
    def render(self, found: Sequence[tuple[Any, Json]], *, colours: bool) -> Iterator[str]:
        """Lines for a terminal: examples, each with its prediction as `to_dict` gives it."""

    # --- heavy halves

    def load_training(self) -> type[Training]:
        found: type[Training] = _imported(self.training)
        return found

    def load_predictor(self) -> type[Predictor[Any, Any]]:
        found: type[Predictor[Any, Any]] = _imported(self.predictor)
        return found


def _imported(name: str) -> Any:
    module, _, inside = name.partition(":")
    return getattr(import_module(module), inside)
