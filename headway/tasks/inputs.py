"""Inputs to predict, from files and pipes: rows to examples, in windows, so that memory stays bounded.

A line of a plain text file is an input; other files have rows; a pipe has lines or, as its first line shows, JSON
objects or a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO

from headway.data.files.lines import BadLine, Lines, open_text, recoded
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import Flaw, Row, json_row, read_file, table
from headway.data.files.rows import BadRows
from headway.errors import DataError, HeadwayError

if TYPE_CHECKING:
    from headway.config.recipe import DataConfig
    from headway.tasks.base import Task

WINDOW = 256
"""Inputs that are sorted by length together."""
WAIT = 0.05
"""Seconds without a new line after which the lines of a pipe so far are computed."""
STDIN = "stdin"
INPUT = "input"
"""The name of a row's only value where the file names none."""
NAME = re.compile(r"\w[\w.-]{0,40}")
"""A column's name, where only the line itself shows that it is a header."""


@dataclass(frozen=True, slots=True)
class Item:
    """An example and where it came from."""

    example: Any
    file: str = ""
    line: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of its row: they pass through to the results."""


def read_examples(task: Task, source: str, data: DataConfig, bad: BadRows) -> list[Any]:
    """All examples of a file; an error where there are none."""
    found = [item.example for item in task.inputs(source, data, bad)]
    if not found:
        raise bad.no_rows(source, "examples")
    return found


def parsed(rows: Iterator[Row | Flaw], parse: Callable[[Mapping[str, Any]], Any], bad: BadRows) -> Iterator[Item]:
    """Rows to examples; `bad` takes the rows that `parse` refuses."""
    for row in rows:
        if isinstance(row, Flaw):
            reject(row, bad)
            continue
        try:
            yield Item(parse(row.values), row.file, row.line, {k: v for k, v in row.values.items() if k != INPUT})
        except DataError as error:
            reject(Flaw(row.file, row.line, error.message, code=error.code), bad)


def reject(flaw: Flaw, bad: BadRows) -> None:
    """Count or raise, as `bad` says. The hint does not offer to show a pipe again."""
    try:
        bad.add(flaw)
    except DataError as error:
        hint = f"{bad.setting}=skip leaves such rows out" if flaw.file == STDIN else error.hint
        raise DataError(error.code, error.message, hint) from None


def raw_rows(source: str | BinaryIO, header: Sequence[str] = ()) -> Iterator[Row | Flaw]:
    """Rows of a file, glob, folder, hub dataset or pipe; a bare line is {"input": line}.

    `header` are names of which one must be in the first line of a pipe for that line to be the header of a table.
    """
    if isinstance(source, str):
        for path in find_files(source):
            yield from text_lines(path) if file_format(path)[0] == "text" else read_file(path)
    else:
        yield from pipe_rows(source, header)


def text_lines(path: Path) -> Iterator[Row | Flaw]:
    """The lines of a text file, empty ones left out."""
    with open_text(path) as file:
        yield from _lines(Lines(file), str(path))


def pipe_rows(file: BinaryIO, header: Sequence[str] = ()) -> Iterator[Row | Flaw]:
    """The rows of a stream: JSON objects or a table, where the first line shows it; else lines."""
    lines = Lines(recoded(file, STDIN))
    rows = _lines(lines, STDIN)
    first = next(rows, None)
    if first is None:
        return
    text = first.values[INPUT].removeprefix("\ufeff") if isinstance(first, Row) else ""
    if isinstance(first, Row):
        first = Row({INPUT: text}, first.file, first.line)
    if text.lstrip().startswith("{"):
        every = chain([first], rows)
        yield from (json_row(r.file, r.line, r.values[INPUT]) if isinstance(r, Row) else r for r in every)
    elif delimiter := _delimiter(text, header):
        lines.push_back([text + "\n"])
        yield from table(STDIN, lines, delimiter, header=True)
    else:
        yield from chain([first], rows)


def _delimiter(line: str, header: Sequence[str]) -> str:
    """The delimiter of a table's header, if a line is one: short words, and one of them a known name."""
    for delimiter in ("\t", ",", ";"):
        cells = [cell.strip('"') for cell in line.split(delimiter)]
        known = set(header) & {*cells, *(cell.lower() for cell in cells)}
        if len(cells) > 1 and known and all(NAME.fullmatch(cell) for cell in cells):
            return delimiter
    return ""


def _lines(lines: Lines, name: str) -> Iterator[Row | Flaw]:
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except BadLine as wrong:
            yield Flaw(name, lines.number, wrong.reason, code=wrong.code)
        else:
            if line.strip():
                yield Row({INPUT: line.rstrip("\r\n")}, name, lines.number)


def windows(items: Iterator[Item], size: int = WINDOW) -> Iterator[list[Item]]:
    """Up to `size` items at a time; the items before a row that stops everything are not lost."""
    trouble: HeadwayError | None = None
    while trouble is None:
        part: list[Item] = []
        try:
            while len(part) < size:
                part.append(next(items))
        except HeadwayError as error:
            trouble = error
        except StopIteration:
            if part:
                yield part
            return
        if part:
            yield part
    raise trouble


def live_windows(items: Iterator[Item], size: int = WINDOW) -> Iterator[list[Item]]:
    """The same for a pipe: a window holds what has come so far, so that a single line is answered at once."""
    queue: Queue[Item | BaseException] = Queue(size)

    def pump() -> None:
        try:
            for item in items:
                queue.put(item)
            queue.put(StopIteration())
        except BaseException as error:
            queue.put(error)

    Thread(target=copy_context().run, args=(pump,), name="headway-pipe", daemon=True).start()
    end: BaseException | None = None
    while end is None:
        part: list[Item] = []
        try:
            while len(part) < size and end is None:
                got = queue.get(timeout=WAIT) if part else queue.get()
                if isinstance(got, Item):
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
    task: Task, items: Sequence[Item], results: Sequence[Mapping[str, Any]], *, files: bool = False
) -> Iterator[dict[str, Any]]:
    """Results as rows: where the input stands, the other columns of its row, the input, the prediction."""
    for item, result in zip(items, results, strict=True):
        where = {"file": item.file, "line": item.line} if files else {"line": item.line}
        own = {**task.echo(item.example), **result}
        yield {**where, **_apart(item.more, {*where, *own}, own), **own}


def _apart(more: Mapping[str, Any], taken: set[str], own: Mapping[str, Any]) -> dict[str, Any]:
    """Other columns under names that are not taken: `label` of the file is `input_label` beside a predicted one."""
    found: dict[str, Any] = {}
    for name, value in more.items():
        if name in own and str(own[name]) == str(value):
            continue  # the result says it already
        while name in taken:
            name = f"input_{name}"
        taken.add(name)
        found[name] = value
    return found
