"""Readers of all file formats: each yields rows, and a Flaw in place of a row that cannot be read.

    text      the whole file is one row, {"text": …}
    csv       cells separated by commas, or by semicolons if the first line has no comma; strict about quotes
    tsv       one row per line, cells separated by tabs; quotes are ordinary characters
    jsonl     one object per line
    json      a list of objects, or an object that contains such a list, as SQuAD's files (see `nested`)
    parquet   rows by row group; a row number takes the place of a line number
    sheet     a sheet of a workbook; its cells are what a csv export has

Memory is bounded by one row of ROW_LIMIT bytes; for text by the file, with the same bound on its lines; for parquet by
PARQUET_ROWS rows; for a JSON object by JSON_LIMIT.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headway.data.files import lines as stream
from headway.data.files.lines import (
    LINE_COST,
    BadLine,
    JsonText,
    Lines,
    LongLine,
    decode,
    open_text,
    read_lines,
)
from headway.data.files.locate import file_format
from headway.data.files.nested import rows_inside
from headway.data.files.parquet import batch_rows, parquet_batches
from headway.data.files.sheets import sheet_rows
from headway.errors import HeadwayError, counted
from headway.jsonfile import JSON_LIMIT, JSON_VALUES, parse_object, show, unreadable

NUMBER = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)\s*", re.IGNORECASE)
DATE = re.compile(r"\s*\d{4}-\d\d?-\d\d?(?:[ T]\d\d?:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\s*")
UNCLOSED = "a quote opens here and is never closed"
CSV_REASONS = {
    "expected after": "text after a closing quote: inside a quoted cell, write quotes twice",
    "unexpected end of data": UNCLOSED,
    "new-line character": "a carriage return outside quotes",
}
"""Part of a message of the csv module → our reason."""
EMPTY = "D002"
"""Code of the flaw "the file is empty"."""
HEADER_ROWS, LONG_NAME = 20, 20
"""Lines that show whether the first one is a header; letters of a text that is longer than most names."""
COLUMNS = 100_000
"""The most columns of a table; a file with more is not a table."""
PARQUET_ROWS = 256
"""Rows converted to Python objects at a time."""


@dataclass(frozen=True, slots=True)
class Row:
    values: Mapping[str, Any]
    file: str
    line: int
    """The line where the row starts; for parquet the row's number."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """The reason why a row cannot be used, and its place."""

    file: str
    line: int
    reason: str
    column: str = ""
    code: str = "D007"
    seen: bool = False
    """Whether `headway data` reports this flaw too; other flaws depend on the task."""

    @classmethod
    def of(cls, error: HeadwayError, file: str, line: int, *, seen: bool = False) -> Flaw:
        """What an error says of a row; its message may begin with the file, and a flaw names that already."""
        reason = error.message
        if file and (rest := reason.removeprefix(show(file))) != reason:
            reason = rest.removeprefix(":").strip()
        return cls(file, line, reason, code=error.code, seen=seen)


Found = Iterator[Row | Flaw]


def read_file(path: Path) -> Found:
    """Yield the rows of one file in order, with a Flaw in place of each unusable row."""
    try:
        for item in READERS[file_format(path)[0]](path):
            yield item if isinstance(item, Row) else replace(item, seen=True)
    except OSError as error:
        raise unreadable(path, error) from None


def _text(path: Path) -> Found:
    with open_text(path) as file:
        try:
            raw = read_lines(file)
        except LongLine as long:
            yield Flaw(str(path), long.number, long.reason, code=long.code)
            return
    try:
        text = decode(raw)
    except BadLine:
        yield _first_flaw(path, Lines(io.BytesIO(raw)))
        return
    if text.strip():
        yield Row({"text": text}, str(path), 1)
    else:
        yield empty_file(path)


def _first_flaw(path: Path, lines: Lines) -> Flaw:
    """Find the line that is not UTF-8, in a file that is known to have one."""
    while True:
        try:
            next(lines)
        except BadLine as bad:
            return Flaw(str(path), lines.number, bad.reason, code=bad.code)


def empty_file(path: Path | str) -> Flaw:
    return Flaw(str(path), 1, "the file is empty", code=EMPTY)


def _csv(path: Path) -> Found:
    with open_text(path) as file:
        yield from table(str(path), Lines(file), csv_delimiter(file))


def csv_delimiter(file: io.BufferedReader) -> str:
    first = file.peek(1 << 16).partition(b"\n")[0]
    return ";" if b";" in first and b"," not in first else ","


def _tsv(path: Path) -> Found:
    with open_text(path) as file:
        yield from table(str(path), Lines(file), "\t")


Record = tuple[int, list[str] | BadLine]
"""The line where a record starts, and its cells, or the reason why there are none."""


class _Record:
    """Lines for the csv module, kept until their record is complete."""

    def __init__(self, lines: Lines) -> None:
        self.lines, self.size = lines, 0
        self.taken: list[str] = []

    def start(self) -> int:
        self.taken, self.size = [], 0
        return self.lines.number + 1

    def __iter__(self) -> _Record:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.taken.append(line)
        self.size += len(line) + (LINE_COST if len(self.taken) > 1 else 0)
        if self.size > stream.ROW_LIMIT:
            raise csv.Error("unexpected end of data")
        return line


def table_records(lines: Lines, delimiter: str) -> Iterator[Record]:
    return _tsv_records(lines) if delimiter == "\t" else _csv_records(lines, delimiter)


def _csv_records(lines: Lines, delimiter: str) -> Iterator[Record]:
    # The default limit is too low for a cell with a long document. The setting is global: never lower it.
    csv.field_size_limit(max(csv.field_size_limit(), stream.ROW_LIMIT))
    record = _Record(lines)
    reader = csv.reader(record, delimiter=delimiter, strict=True)
    while True:
        start = record.start()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # After an unclosed quote all following lines look like one cell: continue with the second line instead.
            lines.push_back(record.taken[1:])
            reason = next((said for part, said in CSV_REASONS.items() if part in str(error)), str(error))
            yield start, BadLine(reason)
        except BadLine as bad:
            yield lines.number, bad
        else:
            yield start, cells


def _tsv_records(lines: Lines) -> Iterator[Record]:
    while True:
        try:
            line = next(lines).removesuffix("\n").removesuffix("\r")
        except StopIteration:
            return
        except BadLine as bad:
            yield lines.number, bad
        else:
            yield lines.number, [_tsv_cell(cell) for cell in line.split("\t")] if line else []


def _tsv_cell(cell: str) -> str:
    """Return a cell unchanged, unless a csv writer quoted it because it contains quotes."""
    inner = cell[1:-1]
    if '"' not in inner and cell != '""':
        return cell
    written = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if written else cell


def table(file: str, lines: Lines, delimiter: str, *, header: bool | None = None) -> Found:
    """Yield the rows of a table in a text file; `header` says whether the first line has names, if that is known."""
    # A csv without a header is rare, and headers of forms are whole questions; for tsv both are common.
    return _named_rows(file, table_records(lines, delimiter), sentences=delimiter != "\t", header=header)


def _sheet(path: Path) -> Found:
    return _named_rows(str(path), sheet_rows(path), sentences=True)


def _named_rows(file: str, records: Iterable[Record], *, sentences: bool, header: bool | None = None) -> Found:
    """Yield rows under the names in the first line, or under column1, column2, … if the first line is data.

    `sentences`: whether names may be sentences.
    """
    records = iter(records)
    first = list(islice(records, HEADER_ROWS)) if header is None else []
    records = chain(first, records)
    for line, cells in records:
        if isinstance(cells, BadLine):  # without a header the columns are unknown
            yield Flaw(file, line, f"{cells.reason}, so none of the file is read", code=cells.code)
            return
        if not cells:  # a blank line
            continue
        header = _are_names(cells, [row for _, row in first if isinstance(row, list)], sentences, header)
        names = [(header and cell.strip()) or f"column{i}" for i, cell in enumerate(cells, start=1)]
        if wrong := _unusable(names):
            yield Flaw(file, line, f"{wrong}, so none of the file is read")
        else:
            yield from rows_under(names, file, records if header else chain([(line, cells)], records))
        return
    yield empty_file(file)


def rows_under(names: Sequence[str], file: str, records: Iterable[Record]) -> Found:
    """Yield the rows of a table whose columns are known."""
    for line, cells in records:
        if isinstance(cells, BadLine):
            yield Flaw(file, line, cells.reason, code=cells.code)
        elif len(cells) == len(names):
            yield Row(dict(zip(names, cells, strict=True)), file, line)
        elif cells:  # otherwise a blank line
            yield Flaw(file, line, f"{counted(len(cells), 'cells')} where the first line has {len(names)}")


def _unusable(names: Sequence[str]) -> str:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        return f"two columns are called {name[:40]!r}"
    return f"{len(names):,} columns, and {COLUMNS:,} is the limit" if len(names) > COLUMNS else ""


def _are_names(cells: Sequence[str], first: Sequence[Sequence[str]], sentences: bool, known: bool | None) -> bool:
    """Whether the first line is a header, by its cells and by those of the lines after it."""
    named = [cell.strip() for cell in cells if cell.strip()]
    if known is not None or not named or any(NUMBER.fullmatch(cell) for cell in named):
        return bool(known and named)
    rows = [row for row in first if len(row) == len(cells) and row != cells]
    columns = [(cell.strip(), [row[i].strip() for row in rows]) for i, cell in enumerate(cells)]
    if any(sum(map(_typed, rest)) > 0.8 * max(1, len(rest)) and not _typed(cell) for cell, rest in columns):
        return True  # numbers or dates below a word
    if any(rest.count(cell) > sentences for cell, rest in columns if cell):
        return False  # a label that comes again
    if sentences or not rows:
        return sentences or _look_like_names(named)
    longest = max(columns, key=lambda column: sum(map(len, column[1])))
    usual = sum(map(len, longest[1])) / len(rows)
    return len(longest[0]) < usual / 2 if usual > LONG_NAME else _look_like_names(named)


def _look_like_names(cells: Sequence[str]) -> bool:
    return all(len(cell.split()) <= 5 and cell[-1] not in ".?!…" for cell in cells)


def _typed(cell: str) -> bool:
    return bool(NUMBER.fullmatch(cell) or DATE.fullmatch(cell))


def _jsonl(path: Path) -> Found:
    with open_text(path) as file:
        first = next(items := json_lines(str(path), Lines(file)), None)
        yield first or empty_file(path)
        yield from items


def json_lines(file: str, lines: Lines) -> Found:
    """Yield an object for each line that is not blank."""
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except BadLine as bad:
            yield Flaw(file, lines.number, bad.reason, code=bad.code)
        else:
            if line.strip():
                yield json_row(file, lines.number, line)


def json_row(file: str, line: int, text: str) -> Row | Flaw:
    try:
        return Row(parse_object(text.encode(), JSON_VALUES), file, line)
    except ValueError as error:
        return Flaw(file, line, re.sub(r": line 1 column (\d+) \(char \d+\)", r" at column \1", str(error)))


def _json(path: Path) -> Found:
    with open_text(path) as file:
        text = JsonText(file)
        try:
            if (first := text.char()) != "[":
                if first == "{":
                    yield from _nested(path, text.line)
                else:
                    yield Flaw(str(path), text.line, "not a list of objects") if first else empty_file(path)
                return
            text.at += 1
            mark = text.char()
            while mark != "]":
                line, value = text.value()
                yield json_row(str(path), line, value)
                if (mark := text.char()) == ",":
                    text.at += 1
                elif mark != "]":
                    raise BadLine("not valid JSON: a comma or the end of the list is missing")
            text.at += 1
            if text.char():
                raise BadLine("not valid JSON: something follows the end of the list")
        except BadLine as bad:  # the start of the next object is unknown
            yield Flaw(str(path), text.line, f"{bad.reason}; the file is read no further", code=bad.code)


def _nested(path: Path, line: int) -> Found:
    with open_text(path) as file:
        try:
            for line, row in rows_inside(file.read(JSON_LIMIT + 1)):
                yield Flaw(str(path), line, row) if isinstance(row, str) else Row(row, str(path), line)
        except ValueError as error:
            yield Flaw(str(path), line, str(error))


def _parquet(path: Path) -> Found:
    for number, batch in parquet_batches(path, PARQUET_ROWS):
        for i, values in enumerate(batch_rows(batch)):
            yield parquet_row(str(path), number + i, values)


def parquet_row(file: str, number: int, values: dict[str, Any] | str) -> Row | Flaw:
    return Flaw(file, number, values) if isinstance(values, str) else Row(values, file, number)


READERS: dict[str, Callable[[Path], Found]] = {
    "text": _text,
    "csv": _csv,
    "tsv": _tsv,
    "jsonl": _jsonl,
    "json": _json,
    "parquet": _parquet,
    "sheet": _sheet,
}
