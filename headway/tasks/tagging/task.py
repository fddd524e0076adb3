"""Tagging: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import at_least, shares
from headway.config.recipe import DataConfig
from headway.data.datasets.conll import is_conll
from headway.data.files.columns import TAGS, WORDS, named
from headway.data.files.locate import find_files
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.tasks.base import FineTuning, Json, Suitability, Tries
from headway.tasks.tagging.evaluate import read_tagged
from headway.tasks.text import TextExample, TextTask, reads_text, shortened

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey

PALETTE = (31, 166, 28, 160, 136, 97, 30, 125)
"""Colors of the 256-color palette for labels; all are readable on black and on white."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `tag` of a recipe."""

    scheme: Literal["auto", "bio", "iobes", "plain"] = "auto"
    """The labels to learn; files may have any scheme. plain labels stand for themselves, as parts of speech do; auto is
    plain where no tag of the data has a prefix such as B-, and else bio."""
    decode: Literal["legal", "argmax"] = "legal"
    """legal: the most likely sequence of labels that the scheme allows (Viterbi); argmax: each word by itself."""
    dropout: float = 0.1
    """Dropout before the classifier."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all labels (Szegedy et al. 2016)."""
    context: int = 0
    """Tokens of the sentences before and after, from the same document, that are read but not labeled (Schweter & Akbik
    2020). A document ends with its file or at a -DOCSTART- line."""

    def __post_init__(self) -> None:
        shares("tag", self, "dropout", "label_smoothing")
        at_least("tag", self, context=0)


class Tagging(TextTask):
    """A label for each word: entities, parts of speech."""

    name, title, noun, pipeline_tag = "tag", "token classification", "tagger", "token-classification"
    Settings = Settings
    renamed: ClassVar[Mapping[str, str]] = {"smoothing": "label_smoothing"}
    tries = Tries('"Mr Gorven said it rained in Halmar"', request={"input": "Anna met Boris in Oslo"})
    made_up = "made-up sentences"
    splits_words = windows = True
    fine_tuning = FineTuning(lr=1.5e-4, around=128, settings={"context": 64})
    training = "headway.tasks.tagging.training:TaggingTraining"
    predictor = "headway.tasks.tagging.predict:TaggingPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        if is_conll(find_files(survey.spec)[0]):
            return Suitability(1.0)
        values = [row.values for row in rows]
        return Suitability(0.9 * all(named(values, role) for role in (WORDS, TAGS)))

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        return ((" ".join(row.words),) for row in read_tagged(data.train, data, "auto", bad).sentences)

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        read_tagged(source, data, "auto", bad)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.tag is not None and reads_text(config)

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            entities = result["entities"]
            yield marked(example.text, entities, colours)
            wide = max((len(entity["label"]) for entity in entities), default=0)
            for entity in entities:
                place, name = f"{entity['start']}–{entity['end']}", f"{entity['label']:{wide}}"
                name = _colored(name, entity["label"]) if colours else name
                yield f"  {place:>9}  {name}  {entity['score']:6.1%}  {shortened(entity['text'])}"


def marked(text: str, entities: Sequence[Mapping[str, Any]], colours: bool) -> str:
    """A text with its entities in colors, or in brackets with their labels."""
    parts, at = [], 0
    for entity in entities:
        inside = text[entity["start"] : entity["end"]]
        parts += [text[at : entity["start"]]]
        parts += [_colored(inside, entity["label"]) if colours else f"[{entity['label']} {inside}]"]
        at = entity["end"]
    return "".join([*parts, text[at:]])


def _colored(text: str, label: str) -> str:
    return f"\x1b[1;38;5;{PALETTE[sum(label.encode()) % len(PALETTE)]}m{text}\x1b[0m"
