"""Word vectors: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.networks.words import WordVectorsConfig
from headway.config.ranges import at_least
from headway.config.recipe import DataConfig
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows, documents
from headway.errors import ConfigError
from headway.tasks.base import Json, Suitability, Tries
from headway.tasks.text import TextExample, TextTask

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `word2vec` of a recipe."""

    model: Literal["skipgram", "cbow"] = "skipgram"
    """skipgram: a word predicts its neighbours; cbow: the mean of the neighbours predicts the word (Mikolov et al.
    2013)."""
    window: int = 5
    """Neighbours on each side, at most: for each word the reach is drawn from 1 to this."""
    negatives: int = 5
    """Words drawn beside each word to predict, which the model learns to tell from it."""
    power: float = 0.75
    """Negatives are drawn by the counts of words to this power."""
    subsample: float = 1e-3
    """Words that are a larger share of the text than this are left out at random, the more the larger; 0: none is."""
    min_count: int = 5
    """Words that occur less often have no vector."""
    split: Literal["letters", "spaces"] = "letters"
    """What a word is. letters: letters, digits and underscores; spaces: all between white space."""
    subwords: int = 0
    """Rows that n-grams of letters share by their hash (Bojanowski et al. 2017): words that were never seen have
    vectors then; 0: words have no n-grams. 2000000 is usual."""
    shortest: int = 3
    """Letters of the shortest n-grams."""
    longest: int = 6
    """Letters of the longest."""
    threads: int = 0
    """Threads that train on a CPU without waiting for each other; 0: all cores. One thread gives the same bits every
    time."""

    def __post_init__(self) -> None:
        at_least("word2vec", self, window=1, negatives=1, power=0, subsample=0, min_count=1, subwords=0)
        at_least("word2vec", self, shortest=1, longest=1, threads=0)
        if self.shortest > self.longest:
            what = f"word2vec.shortest = {self.shortest} is more than word2vec.longest = {self.longest}"
            raise ConfigError("C004", what)


class WordVectorsTask(TextTask):
    """A vector for each word, from the words that stand around it."""

    name, title, noun, pipeline_tag = "word2vec", "word vectors", "model of word vectors", "feature-extraction"
    Settings = Settings
    tries = Tries('"function"', request={"input": "the"})
    made_up = "the text of Python's own reference"
    options = frozenset({"top"})
    one_sequence = False
    training = "headway.tasks.word2vec.training:WordVectorsTraining"
    predictor = "headway.tasks.word2vec.predict:WordVectorsPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        return Suitability(0.05 * bool(survey.texts))

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        from headway.data.datasets.text import read_corpus  # numpy

        return ((text,) for text in read_corpus(data.train, data, bad).read())

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        for _ in documents(source, data.text, bad):
            pass

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, WordVectorsConfig)

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            if len(found) > 1:
                yield example.text
            for near in result["neighbours"]:
                yield f"{near['cosine']:.4f}  {near['word']}"
