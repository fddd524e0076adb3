"""Texts to use a model on, from a file of any kind or a pipe, in windows: no more of them is kept at one time.

A line of a plain text file is a text; other files have rows; a pipe has lines or, as the first of them shows, JSON
objects or a table. For a tagger, sentences may come with their words apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, BinaryIO

from headway.data.datasets.conll import is_conll, sentences_of
from headway.data.files.columns import CONTEXT, PAIR, QUESTION, TEXT, TOGETHER, WORDS, column_names, find_columns
from headway.data.files.lines import BadLine, Lines, open_text
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row, table
from headway.data.files.rows import BadRows, peek, text_flaw
from headway.errors import DataError, HeadwayError
from headway.jsonfile import JSON_VALUES, parse_object, show

WINDOW = 256
"""Texts that are sorted by length together."""
WAIT = 0.05
"""Seconds without a new line in which what a pipe has brought is worth computing."""
STDIN = "stdin"
TEXT_NAMES = {*QUESTION.names, *TEXT.names, *(first for first, _ in TOGETHER[TEXT, PAIR])}
ASKED = replace(TEXT, setting=QUESTION.setting, names=(*QUESTION.names, *TEXT.names))
"""A question that comes without a context."""
NAME = re.compile(r"\w[\w.-]{0,40}")
"""The name of a column, where nothing but the line itself says that it is one."""


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What a model is asked about."""

    text: str
    pair: str | None = None
    """A second text that is read with it: the other of a pair, or the context of a question."""
    file: str = ""
    line: int = 0
    words: tuple[str, ...] = ()
    """Of the text, where the file has them apart."""
    id: str = ""
    """What a question is known by."""


@dataclass(frozen=True)
class Columns:
    """Where the texts of a row are; what is empty is guessed."""

    text: str = ""
    pair: str = ""
    firm: bool = True
    """Whether a column that is not there is a mistake; else it is guessed, too."""
    wants: str = ""
    """answer: a question and its context; question: that alone; pairs: a second text where there is one; words: those
    of the text, where they are apart."""


def read_inputs(spec: str, columns: Columns, bad: BadRows) -> Iterator[TaskInput]:
    """The texts of a file, glob, folder or hub dataset, in order; what is none goes to `bad`."""
    for path in find_files(spec):
        if columns.wants == "words" and is_conll(path):
            yield from _sentences(path, bad)
        elif file_format(path)[0] == "text":
            _no_context(str(path), columns)
            yield from _texts(_lines_of(path), "text", "", bad)
        else:
            rows, first = peek(path)
            yield from _texts(rows, *_columns(str(path), first, columns), bad)


def read_pipe(file: BinaryIO, columns: Columns, bad: BadRows) -> Iterator[TaskInput]:
    """The texts of a stream of lines; of objects or a table, where the first line is one or names its columns."""
    lines = Lines(file)
    rows = _lines(lines, STDIN)
    first = next(rows, None)
    if isinstance(first, Row):
        first = Row({"text": first.values["text"].removeprefix("\ufeff")}, first.file, first.line)
    if first is None:
        return
    text = first.values["text"] if isinstance(first, Row) else ""
    if text.lstrip().startswith("{"):
        rows = (_object(row) if isinstance(row, Row) else row for row in chain([first], rows))
        yield from _rows_of(rows, columns, bad)
    elif delimiter := _delimiter(text, columns):
        lines.push_back([text + "\n"])
        yield from _rows_of(table(STDIN, lines, delimiter), columns, bad)
    elif columns.text and columns.firm:
        raise DataError("D004", f"{STDIN} has no column {columns.text!r} (data.text): its first line names none")
    else:
        _no_context(STDIN, columns)
        yield from _texts(chain([first], rows), "text", "", bad)


def _rows_of(rows: Iterator[Row | Flaw], columns: Columns, bad: BadRows) -> Iterator[TaskInput]:
    """Texts of a pipe's rows, where the first one tells what there is."""
    first = next(rows, None)
    if first is not None:
        names = _columns(STDIN, [first] if isinstance(first, Row) else [], columns)
        yield from _texts(chain([first], rows), *names, bad)


def _delimiter(line: str, columns: Columns) -> str:
    """What parts the names of a table, if a line is that: short words, and one of them is what texts are called."""
    usual = {columns.text} if columns.text and columns.firm else {columns.text, *TEXT_NAMES}
    for delimiter in ("\t", ",", ";"):
        cells = [cell.strip('"') for cell in line.split(delimiter)]
        named = usual & {*cells, *(cell.lower() for cell in cells)}
        if len(cells) > 1 and named and all(NAME.fullmatch(cell) for cell in cells):
            return delimiter
    return ""


def _no_context(file: str, columns: Columns) -> None:
    """Lines have one column only."""
    if columns.wants == "answer":
        raise DataError("D004", f"{show(file)} has questions but no contexts", "--context FILE gives one for all")


def _lines_of(path: Path) -> Iterator[Row | Flaw]:
    with open_text(path) as file:
        yield from _lines(Lines(file), str(path))


def _sentences(path: Path, bad: BadRows) -> Iterator[TaskInput]:
    """Those of a column file; its tags are left alone."""
    for found in sentences_of(path):
        if isinstance(found, Flaw):
            reject(found, bad)
        else:
            yield TaskInput(" ".join(found.words), None, found.file, found.line, found.words)


def _lines(lines: Lines, name: str) -> Iterator[Row | Flaw]:
    """Lines that have something on them."""
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except BadLine as wrong:
            yield Flaw(name, lines.number, wrong.reason, code=wrong.code)
        else:
            if line.strip():
                yield Row({"text": line.rstrip("\r\n")}, name, lines.number)


def _object(row: Row) -> Row | Flaw:
    try:
        return Row(parse_object(row.values["text"].encode(), JSON_VALUES), row.file, row.line)
    except ValueError as error:
        return Flaw(row.file, row.line, str(error))


def _texts(rows: Iterator[Row | Flaw], text: str, pair: str, bad: BadRows) -> Iterator[TaskInput]:
    for row in rows:
        if isinstance(row, Row) and (words := _words(row.values.get(text))):
            yield TaskInput(" ".join(words), None, row.file, row.line, words)
            continue
        flaw = text_flaw(row, text) or (text_flaw(row, pair) if pair else None)
        if flaw is not None:
            reject(flaw, bad)
        elif isinstance(row, Row):
            name = str(row.values["id"]) if text.lower() in QUESTION.names and "id" in row.values else ""
            yield TaskInput(row.values[text], row.values[pair] if pair else None, row.file, row.line, id=name)


def _words(value: Any) -> tuple[str, ...]:
    """A list of words, if it is one."""
    if not isinstance(value, list) or not all(isinstance(word, str) and word.strip() for word in value):
        return ()
    return tuple(value)


def reject(flaw: Flaw, bad: BadRows) -> None:
    """As `bad` has it; what came through a pipe cannot be looked at again."""
    try:
        bad.add(flaw)
    except DataError as error:
        hint = f"{bad.setting}=skip leaves such rows out" if flaw.file == STDIN else error.hint
        raise DataError(error.code, error.message, hint) from None


def _columns(file: str, rows: Sequence[Row], columns: Columns) -> tuple[str, str]:
    """The columns of the text and of the second one, which is empty where there is none."""
    values = [row.values for row in rows]
    if not any(values):
        return columns.text or "text", columns.pair
    if columns.wants in ("answer", "question"):
        given = {QUESTION.setting: columns.text, CONTEXT.setting: columns.pair}  # as in training
        if columns.wants == "question":
            return find_columns(file, values, [ASKED], given, strict=columns.firm)[0], ""
        try:
            question, context = find_columns(file, values, (QUESTION, CONTEXT), given, strict=columns.firm)
        except DataError as error:
            raise DataError(error.code, error.message, f"{error.hint}; --context gives a context for all") from None
        return question, context
    given = {TEXT.setting: columns.text, PAIR.setting: columns.pair}
    if columns.wants == "words" and not (columns.text and (columns.firm or columns.text in column_names(values))):
        apart = [name for name in WORDS.names if any(_words(row.get(name)) for row in values)]
        if apart:
            return apart[0], ""
    text, pair = find_columns(file, values, (TEXT, PAIR), given, strict=columns.firm)
    return text, pair if columns.wants == "pairs" or columns.pair else ""


def windows(inputs: Iterator[TaskInput], size: int = WINDOW) -> Iterator[list[TaskInput]]:
    """So many at a time; what comes before a row that stops everything is not lost."""
    trouble: HeadwayError | None = None
    while trouble is None:
        part: list[TaskInput] = []
        try:
            while len(part) < size:
                part.append(next(inputs))
        except HeadwayError as error:
            trouble = error
        except StopIteration:
            if part:
                yield part
            return
        if part:
            yield part
    raise trouble


def pipe_windows(inputs: Iterator[TaskInput], size: int = WINDOW) -> Iterator[list[TaskInput]]:
    """The same for a pipe: a window is what has come by now, so that a single line has its answer at once."""
    queue: Queue[TaskInput | BaseException] = Queue(size)

    def pump() -> None:
        try:
            for item in inputs:
                queue.put(item)
            queue.put(StopIteration())
        except BaseException as error:
            queue.put(error)

    Thread(target=pump, name="headway-pipe", daemon=True).start()
    end: BaseException | None = None
    while end is None:
        part: list[TaskInput] = []
        try:
            while len(part) < size and end is None:
                got = queue.get(timeout=WAIT) if part else queue.get()
                if isinstance(got, TaskInput):
                    part.append(got)
                else:
                    end = got
        except Empty:
            pass
        if part:
            yield part
    if not isinstance(end, StopIteration):
        raise end


def located(
    inputs: Sequence[TaskInput], results: Sequence[Mapping[str, Any]], *, files: bool = False, pairs: bool = False
) -> Iterator[dict[str, Any]]:
    """Results with where their texts stand, and the texts; with the second ones, where they are as short."""
    for item, result in zip(inputs, results, strict=True):
        where = {"file": item.file} if files else {}
        what = {"id": item.id} if item.id else {}
        second = {"pair": item.pair} if pairs and item.pair is not None else {}
        yield {**where, "line": item.line, **what, "text": item.text, **second, **result}
