"""Questions on a context, with the spans of it that answer them: SQuAD's JSON, and rows of other files.

Rows have `question`, `context` and `answers`, as those in SQuAD's files (1.1 and 2.0); answers in any of three forms:
{"text": […], "answer_start": […]}, a list of {"text", "answer_start"}, or plain texts, which are looked for in the
context. No answer at all is an answer too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from headway.data.files.locate import find_files
from headway.data.files.readers import Flaw, Row, read_file
from headway.data.files.rows import BadRows, brief
from headway.jsonfile import show

ANSWERS = ("answers", "answer")


@dataclass(frozen=True, slots=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    """Text and where it begins in the context; the first is learned, any counts as right. None: no answer is right."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a row are called, where the usual names do not fit."""

    context: str = ""
    question: str = ""
    answers: str = ""


def questions(spec: str, columns: Columns | None = None, bad: BadRows | None = None) -> Iterator[Question]:
    """All questions of the files a spec stands for, in order; one that cannot be used goes to `bad`."""
    bad = bad or BadRows()
    files = (_read_rows(path, columns or Columns()) for path in find_files(spec))
    yield from bad.filter(chain.from_iterable(files), spec, "questions")


def _read_rows(path: Path, columns: Columns) -> Iterator[Question | Flaw]:
    for item in read_file(path):
        yield item if isinstance(item, Flaw) else _parse_row(item, columns)


def _parse_row(row: Row, columns: Columns) -> Question | Flaw:
    values = row.values
    name = columns.answers or next((name for name in ANSWERS if name in values), "")
    where = str(values.get("id", row.line))
    texts = []
    for given, usual, setting in ((columns.question, "question", "pair"), (columns.context, "context", "text")):
        found = given if given in values else usual  # other files of a run may have the usual names
        if found not in values:
            listed = ", ".join(f'"{show(column)[:40]}"' for column in list(values)[:12])
            reason = f'no column "{show(given or usual)[:40]}", data.{setting} names it; there are {listed}'
            return Flaw(row.file, row.line, reason)
        texts.append(values[found])
    item = _parse(where, texts[0], texts[1], values.get(name))
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
    """Text and place, the place None where the file does not say."""
    if isinstance(answers, Mapping):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
        if isinstance(texts, str):
            return [(texts, starts)]
        raise ValueError(f"answers should have as many texts as places, found {brief(answers)}")
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
        raise ValueError(f"an answer begins at {brief(start)}, which is no place in a text")
    if context[start : start + len(text)] != text:
        there = context[start : start + len(text)]
        raise ValueError(
            f"the answer {brief(text)} is not at character {start} of the context, where {brief(there)} is"
        )
    return text, start
