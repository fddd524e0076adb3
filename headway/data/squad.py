"""Questions on a context, with the spans of it that answer them: SQuAD's JSON, and rows of other files.

SQuAD's files (1.1 and 2.0) are one object: articles, their paragraphs, questions with answers. Rows have `question`,
`context` and `answers` in any of three forms: {"text": […], "answer_start": […]}, a list of {"text", "answer_start"},
or plain texts, which are looked for in the context. No answer at all is an answer too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from headway.data.formats import Flaw, Row, read_file
from headway.data.records import BadRows, brief
from headway.data.sources import file_format, find_files
from headway.data.stream import open_text
from headway.jsonfile import JSON_LIMIT, JSON_VALUES, parse_object, show, unreadable

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
    files = (_squad(path) if _is_squad(path) else _rows(path, columns or Columns()) for path in find_files(spec))
    yield from bad.without(chain.from_iterable(files), spec, "questions")


def _is_squad(path: Path) -> bool:
    """A .json file that is an object; a list of objects is rows."""
    if file_format(path)[0] != "json":
        return False
    with open_text(path) as file:
        return file.peek(1 << 12).lstrip()[:1] == b"{"


def _squad(path: Path) -> Iterator[Question | Flaw]:
    try:
        with open_text(path) as file:
            raw = file.read(JSON_LIMIT + 1)
        if len(raw) > JSON_LIMIT:
            raise ValueError(f"larger than {JSON_LIMIT:,} bytes")
        articles = parse_object(raw, JSON_VALUES).get("data")
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        yield Flaw(str(path), 1, str(error))
        return
    for where, context, entry in _entries(articles):
        item = _question(entry, context, where)
        if isinstance(item, Question):
            yield item
        else:
            place = raw.find(f'"{where}"'.encode())
            yield Flaw(str(path), 1 + raw.count(b"\n", 0, max(place, 0)), f"question {show(where)[:60]}: {item}")


def _entries(articles: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """(id, context, question) of whatever has the form of SQuAD; what has not gets a number for an id."""
    number = 0
    for article in articles if isinstance(articles, list) else [None]:
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        for paragraph in paragraphs if isinstance(paragraphs, list) else [None]:
            found = paragraph.get("qas") if isinstance(paragraph, dict) else None
            for entry in found if isinstance(found, list) else [None]:
                number += 1
                entry = entry if isinstance(entry, dict) else {}
                yield str(entry.get("id", f"#{number}")), paragraph and paragraph.get("context"), entry


def _question(entry: Mapping[str, Any], context: Any, where: str) -> Question | str:
    """A question of SQuAD, or what is wrong with it."""
    if entry.get("is_impossible") is True:
        return _checked(where, entry.get("question"), context, [])
    return _checked(where, entry.get("question"), context, entry.get("answers", []))


def _rows(path: Path, columns: Columns) -> Iterator[Question | Flaw]:
    for item in read_file(path):
        yield item if isinstance(item, Flaw) else _row(item, columns)


def _row(row: Row, columns: Columns) -> Question | Flaw:
    values = row.values
    name = columns.answers or next((name for name in ANSWERS if name in values), "")
    where = str(values.get("id", row.line))
    asked, context = values.get(columns.question or "question"), values.get(columns.context or "context")
    item = _checked(where, asked, context, values.get(name))
    for wanted, setting in ((columns.question or "question", "pair"), (columns.context or "context", "text")):
        if wanted not in values:
            listed = ", ".join(f'"{show(column)[:40]}"' for column in list(values)[:12])
            reason = f'no column "{show(wanted)[:40]}", data.{setting} names it; there are {listed}'
            return Flaw(row.file, row.line, reason)
    if isinstance(item, Question):
        return item
    return Flaw(row.file, row.line, item if where == str(row.line) else f"question {show(where)[:60]}: {item}")


def _checked(where: str, asked: Any, context: Any, answers: Any) -> Question | str:
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
