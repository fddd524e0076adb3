"""Question answering: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import at_least
from headway.config.recipe import DataConfig
from headway.data.datasets.squad import questions
from headway.data.files.columns import ANSWERS, CONTEXT, QUESTION, named
from headway.data.files.readers import Row
from headway.data.files.rows import BadRows
from headway.tasks.base import FineTuning, Json, Suitability, Tries
from headway.tasks.text import TextExample, TextTask, reads_text, shortened

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey

AROUND = 30
"""Characters of the context that are shown on each side of an answer."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `answer` of a recipe."""

    stride: int = 128
    """Tokens by which the windows of a long context overlap, at most half a window."""
    max_answer_length: int = 30
    """Length of the longest answer, in tokens."""
    n_best: int = 20
    """Answers per question that are kept and compared."""
    no_answer: Literal["auto", "yes", "no"] = "auto"
    """Whether "no answer" is allowed; auto: if some questions of the data have none."""
    threshold: float = 0.0
    """By how much "no answer" must score better than the best span to be given."""

    def __post_init__(self) -> None:
        at_least("answer", self, stride=0, max_answer_length=1, n_best=1)


class QuestionAnswering(TextTask):
    """The span of a context that answers a question."""

    name, title, noun = "answer", "question answering", "question-answering model"
    pipeline_tag = "question-answering"
    Settings = Settings
    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_answer_length", "best": "n_best", "none": "no_answer"}
    tries = Tries(
        '--context "clara lives in paris . jonas bought a small boat ." "what did jonas buy ?"',
        '--context FILE "…"',
        {"input": "Where does Anna live?", "context": "Anna lives in Oslo."},
    )
    made_up = "made-up stories"
    options = frozenset({"top", "context"})
    second, roles = "context", (QUESTION, CONTEXT)
    needs_second = windows = True
    fine_tuning = FineTuning(lr=1.5e-4, longest=384)
    training = "headway.tasks.qa.training:QuestionAnsweringTraining"
    predictor = "headway.tasks.qa.predict:QuestionAnsweringPredictor"

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        values = [row.values for row in rows]
        return Suitability(0.95 * all(named(values, role) for role in (QUESTION, CONTEXT, ANSWERS)))

    def texts(self, data: DataConfig, bad: BadRows) -> Iterator[tuple[str, ...]]:
        return ((asked.question, asked.context) for asked in questions(data.train, data, bad))

    def bad_rows(self, source: str, data: DataConfig, bad: BadRows) -> None:
        list(questions(source, data, bad))

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.span is not None and reads_text(config)

    def render(self, found: Sequence[tuple[TextExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            if len(found) > 1:
                yield shortened(example.text)
            for each in result["best"]:
                said, where = "no answer", ""
                if each["answer"] is not None:
                    said, context = shortened(each["answer"]), example.pair or ""
                    before, after = context[: each["start"]][-AROUND:], context[each["end"] :][:AROUND]
                    where = f"  … {shortened(f'{before}⟦{said}⟧{after}', 162)} …"
                yield f"{each['score']:6.1%}  {said}{where}"
