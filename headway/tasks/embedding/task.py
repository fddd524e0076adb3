"""Sentence embeddings: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headway.config.model import TokensConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import above_zero
from headway.config.recipe import DataConfig
from headway.data.datasets.pairs import read_pairs
from headway.data.files.columns import ANCHOR, LABEL, POSITIVE, column_names, named, named_together
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.tasks.base import FineTuning, Json, Suitability, Tries
from headway.tasks.text import TextExample, TextTask, shortened

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `embed` of a recipe."""

    pool: Literal["first", "mean"] = "mean"
    """What represents a text: the first token's vector, or the mean over all tokens."""
    temperature: float = 0.05
    """Divides the cosine similarities of a batch before the softmax."""
    symmetric: bool = True
    """Each text of a pair has to find the other, not only the first one the second."""

    def __post_init__(self) -> None:
        above_zero("embed", self, "temperature")


class Embedding(TextTask):
    """One vector per text, trained so that pairs are close."""

    name, title, noun, pipeline_tag = "embed", "sentence embedding", "embedding model", "feature-extraction"
    Settings = Settings
    tries = Tries('"a text"')
    made_up = "made-up paraphrases"
    options = frozenset({"top", "nearest"})
    together = (ANCHOR, POSITIVE)
    one_sequence = False
    fine_tuning = FineTuning(lr=5e-5, epochs=(1, 10), longest=256, batch=64, keep_best=True)
    training = "headway.tasks.embedding.training:EmbeddingTraining"
    predictor = "headway.tasks.embedding.predict:EmbeddingPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        values = [row.values for row in rows]
        pairs = named_together(column_names(values), (ANCHOR, POSITIVE))
        return Suitability(0.7 * bool(pairs and not named(values, LABEL)))

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        pairs = read_pairs(data.train, data, bad)
        return iter(list(zip(pairs.first, pairs.second, strict=True)))

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        read_pairs(source, data, bad)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config.source, TokensConfig)

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            row = result["embedding"]
            numbers = " ".join(f"{value:+.4f}" for value in row[:6])
            yield f"{len(row)} numbers  {numbers} …  {shortened(example.text, 60)}"
