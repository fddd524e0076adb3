"""Language modeling: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows, documents
from headway.tasks.base import FineTuning, Json, Suitability, Tries
from headway.tasks.text import TextExample, TextTask, score_line

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


class LanguageModeling(TextTask):
    """The next token, for every token of a text."""

    name, title, noun, pipeline_tag = "lm", "language modeling", "language model", "text-generation"
    tries = Tries('"The import statement"')
    made_up = "the text of Python's own reference"
    options = frozenset({"score"})
    generates = predicts_tokens = networks = carries = True
    evaluates, fills_rows, minutes = False, True, 5.0
    fine_tuning = FineTuning(epochs=(1, 4), keep_best=True)
    training = "headway.tasks.lm.training:LanguageModelTraining"
    predictor = "headway.tasks.lm.predict:LanguageModelPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        named = (f"data.text={survey.column}",) if survey.column and not survey.sure else ()
        return Suitability(0.1 * bool(survey.texts), named)

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        from headway.data.datasets.text import read_corpus  # numpy

        return ((text,) for text in read_corpus(data.train, data, bad).read())

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        for _ in documents(source, data.text, bad):
            pass

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.kind == "decoder"

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            yield score_line(example.text, result) if "perplexity" in result else example.text + result["new"]
