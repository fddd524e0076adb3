"""Questions with a context and answer spans: SQuAD's JSON (1.1 and 2.0), and rows of other files.

Answers have one of three forms: {"text": […], "answer_start": […]}, a list of {"text", "answer_start"}, or plain texts,
which are searched in the context. A question without answers is unanswerable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.files.columns import ANSWERS, CONTEXT, QUESTION, named
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows, brief, parse_file
from headway.jsonfile import show


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    """Text and start in the context. Training uses the first, evaluation accepts any; empty: unanswerable."""


def questions(spec: str, data: DataConfig | None = None, bad: BadRows | None = None) -> Iterator[Question]:
    """Yield all questions of a spec in order; a question that cannot be used goes to `bad`.

    data.text, data.pair and data.label name the columns of contexts, questions and answers.
    """
    roles = (QUESTION, CONTEXT, ANSWERS)  # files of SQuAD have their own names, whatever those of the run's tables
    files = (
        parse_file(path, roles, _parse_row, data, strict=file_format(path)[0] != "json") for path in find_files(spec)
    )
    yield from (bad or BadRows()).filter(chain.from_iterable(files), spec, "questions")


def _parse_row(row: Row, question: str, context: str, answers: str) -> Question | Flaw:
    values = row.values
    where = str(values.get("id", row.line))
    answers = answers or named([values], ANSWERS)  # rows without answers may come first
    item = _parse(where, values.get(question), values.get(context), values.get(answers))
    if isinstance(item, Question):
        return item
    return Flaw(row.file, row.line, item if where == str(row.line) else f"question {show(where)[:60]}: {item}")


def _parse(where: str, asked: Any, context: Any, answers: Any) -> Question | str:
    for name, value in (("question", asked), ("context", context)):
        if not isinstance(value, str) or not value.strip():
            nothing = value is None or isinstance(value, str)
            return f"no {name}" if nothing else f"the {name} should be a text, found {brief(value)}"
    try:
        spans = tuple(_span(text, start, context) for text, start in _pairs(answers))
    except ValueError as error:
        return str(error)
    return Question(where, asked, context, spans)


def _pairs(answers: Any) -> list[tuple[Any, Any]]:
    """Text and start of each answer; the start is None if the file does not give it."""
    if isinstance(answers, Mapping):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
        if isinstance(texts, str):
            return [(texts, starts)]
        raise ValueError(f"answers should have as many texts as starts, found {brief(answers)}")
    if answers is None or answers == "":
        return []
    listed = answers if isinstance(answers, list) else [answers]
    return [(a.get("text"), a.get("answer_start")) if isinstance(a, Mapping) else (a, None) for a in listed]


def _span(text: Any, start: Any, context: str) -> tuple[str, int]:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an answer without text: {brief(text)}")
    if start is None:
        start = context.find(text)
        if start < 0:
            raise ValueError(f"the answer {brief(text)} is nowhere in the context")
    if type(start) is not int or start < 0:
        raise ValueError(f"an answer starts at {brief(start)}, which is not a character index")
    if context[start : start + len(text)] != text:
        there = context[start : start + len(text)]
        raise ValueError(
            f"the answer {brief(text)} is not at character {start} of the context, where {brief(there)} is"
        )
    return text, start
