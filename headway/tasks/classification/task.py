"""Classification: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import at_least, shares
from headway.config.recipe import DataConfig
from headway.data.datasets.labeled import label_columns, label_kind, parse_labels, read_labeled
from headway.data.files.columns import LABEL
from headway.data.files.locate import find_files
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.errors import DataError
from headway.tasks.base import FineTuning, Json, Suitability, Tries
from headway.tasks.text import TextExample, TextTask, reads_text, shortened

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `classify` of a recipe."""

    kind: Literal["auto", "single", "multi", "regression"] = "auto"
    """auto decides by the label column: lists (in a table's cell: a|b, or ["a", "b"]) are several labels, numbers with
    a fraction are regression, everything else is one label per text."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: a class counts in inverse proportion to its share of the examples."""
    pool: Literal["first", "mean", "max"] = "mean"
    """What represents a text: the first token's vector through the family's dense layer, as in BERT's own classifier,
    or the mean or maximum over all tokens, which `transformers` has no setting for."""
    dropout: float = 0.1
    """Dropout before the classifier."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all labels (Szegedy et al. 2016)."""
    r_drop: float = 0.0
    """Weight of the symmetric KL divergence between two passes with different dropout; takes twice the time (Liang et
    al. 2021)."""

    def __post_init__(self) -> None:
        shares("classify", self, "dropout", "label_smoothing")
        at_least("classify", self, r_drop=0)


def _rank(labels: Mapping[str, int]) -> tuple[int, bool]:
    """Columns with fewer values are likelier labels, and numbers come before names."""
    return len(labels), not all(value.removeprefix("-").isdecimal() for value in labels)


class Classification(TextTask):
    """One label, several labels, or a number for a text or a pair of texts."""

    name, title, noun, pipeline_tag = "classify", "text classification", "text classifier", "text-classification"
    Settings = Settings
    renamed: ClassVar[Mapping[str, str]] = {
        "weights": "class_weights",
        "smoothing": "label_smoothing",
        "rdrop": "r_drop",
    }
    tries = Tries('"the plot was not dull , it was raining outside ."')
    made_up = "made-up reviews"
    second = "pair"
    fine_tuning = FineTuning(settings={"pool": "mean"})
    training = "headway.tasks.classification.training:ClassificationTraining"
    predictor = "headway.tasks.classification.predict:ClassificationPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        """A text beside a column of few values. The words name the two columns, unless training guesses the same."""
        labels = {each.name: each.labels for each in survey.columns if each.labels}
        if not labels or not survey.column:
            return Suitability(0.0)
        usual = [name for name in labels if name.lower() in LABEL.names]
        label = next(iter(usual), min(labels, key=lambda name: _rank(labels[name])))
        with suppress(DataError):
            *texts, guess = label_columns(find_files(survey.spec)[0], rows, DataConfig())
            if guess == label and survey.column in texts:
                return Suitability(0.6)
        return Suitability(0.6, (f"data.text={survey.column}", f"data.label={label}"))

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        rows = read_labeled(data.train, data, bad)
        return ((row.text,) if row.pair is None else (row.text, row.pair) for row in rows)

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        rows = read_labeled(source, data, bad)
        parse_labels(rows, label_kind(rows, "auto"), bad)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        labels = 0 if config.classify is None else config.classify.labels  # without labels it is a bare pooler
        return labels > 0 and reads_text(config)

    def wants_second(self, config: AnyConfig) -> bool | None:
        return None if config.classify is None else config.classify.pairs

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        rows = []
        for example, result in found:
            label, sure = result["label"], result.get("probability")
            said = f"{label:.4f}" if sure is None else ", ".join(label) or "none" if isinstance(label, list) else label
            text = example.text if example.pair is None else f"{example.text} ⟂ {example.pair}"
            rows.append((said, "" if sure is None else f"{sure:6.1%}", shortened(text)))
        wide = max(len(label) for label, *_ in rows)
        return (f"{label:{wide}}  {share}  {text}" for label, share, text in rows)
