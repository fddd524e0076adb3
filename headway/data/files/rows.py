"""Rows and documents from data files of any kind, one at a time; what to do with rows that cannot be used."""

from __future__ import annotations

import reprlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

from headway.data.files.digest import fingerprint
from headway.data.files.lines import recode_hint
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import DATE, EMPTY, NUMBER, Flaw, Row, read_file
from headway.errors import DataError, counted, nearest
from headway.jsonfile import show

__all__ = ["BadRows", "Document", "Row", "documents", "find_files", "fingerprint", "rows"]

TEXT_NAMES = ("text", "content", "document", "sentence", "body")
"""What a column of documents is usually called, the likeliest first."""
PEEK = 100
"""Rows that are looked at to tell which column holds the text."""
Item = TypeVar("Item")
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 40


@dataclass(frozen=True, slots=True)
class Document:
    text: str
    file: str
    line: int


@dataclass(slots=True)
class BadRows:
    """What becomes of rows that cannot be used: the first stops everything, or they are counted and left out."""

    policy: Literal["stop", "skip"] = "stop"
    keep: int = 20
    """How many are remembered."""
    setting: str = "data.bad_rows"
    """What the policy is called where it can be changed."""
    count: int = 0
    first: list[str] = field(default_factory=list)
    """`file:line: reason` of the first ones."""

    def add(self, flaw: Flaw) -> None:
        column = f'column "{show(flaw.column)[:60]}": ' if flaw.column else ""
        where, reason = show(flaw.file), column + flaw.reason
        if self.policy == "stop":
            unit = "row" if file_format(flaw.file)[0] == "parquet" else "line"
            hint = f"{self.setting}=skip leaves such rows out"
            if flaw.code == EMPTY:
                hint = ""
            elif flaw.seen:
                words = ["headway", "data", where, *(["--column", flaw.column] if flaw.column else [])]
                hint += f"; {shlex.join(words)} shows them"
            if flaw.code == "D003":
                hint = f"{recode_hint()}\n  {hint}"
            raise DataError(flaw.code, f"{where} {unit} {flaw.line}{', ' if column else ': '}{reason}", hint)
        self.count += 1
        if len(self.first) < self.keep:
            self.first.append(f"{where}:{flaw.line}: {reason}")

    def no_rows(self, spec: str, what: str) -> DataError:
        """The error where none of the rows could be used."""
        said = f" ({counted(self.count, 'bad rows')}, the first: {self.first[0]})" if self.first else ""
        return DataError("D002", f"{show(spec)}: no {what}{said}"[:280])

    def filter(self, items: Iterable[Item | Flaw], spec: str, what: str) -> Iterator[Item]:
        """Items of a kind that a spec should have, without the flaws among them."""
        some = False
        for item in items:
            if isinstance(item, Flaw):
                self.add(item)
            else:
                some = True
                yield item
        if not some:
            raise self.no_rows(spec, what)


def rows(spec: str, bad: BadRows | None = None) -> Iterator[Row]:
    """All rows of a file, glob, folder or hub dataset, in order; a text file is one row with one column, `text`."""
    bad = bad or BadRows()
    for path in find_files(spec):
        for item in read_file(path):
            if isinstance(item, Row):
                yield item
            else:
                bad.add(item)


def documents(spec: str, column: str = "", bad: BadRows | None = None) -> Iterator[Document]:
    """Texts, one for each text file and one for each row of other files, from the column named or guessed."""
    bad = bad or BadRows()
    some = False
    for path in find_files(spec):
        items, first = peek(path)
        name = the_text_column(path, first, column)
        for item in items:
            if flaw := text_flaw(item, name):
                bad.add(flaw)
            elif isinstance(item, Row):
                some = True
                yield Document(item.values[name], item.file, item.line)
    if not some:
        raise bad.no_rows(spec, "documents")


def peek(path: Path) -> tuple[Iterator[Row | Flaw], list[Row]]:
    """What a file holds, in order, and the first rows of it."""
    items = read_file(path)
    first: list[Row | Flaw] = []
    found: list[Row] = []
    while len(found) < PEEK and len(first) < 100 * PEEK and (item := next(items, None)) is not None:
        first.append(item)
        if isinstance(item, Row):
            found.append(item)
    return chain(first, items), found


def the_text_column(path: Path, rows: Sequence[Row], column: str = "") -> str:
    """The column to take documents from: the one named, or the only one it can be."""
    if file_format(path)[0] == "text":
        return "text"
    found = text_columns(rows, column)
    if len(found) == 1 or not rows:
        return found[0] if found else column
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    listed = ", ".join(f'"{show(name)[:40]}"' for name in (found or names)[:12])
    if column:
        raise DataError("D004", f"{show(path)}: no column {column!r}{nearest(column, names)}", f"there are {listed}")
    problem = f"any of {len(found)} columns may be the text" if found else "no column holds text"
    remedy = "name the one to read: data.text=NAME" if found else "a document is a string: give a file that has some"
    raise DataError("D004", f"{show(path)}: {problem}: {listed}"[:280], remedy)


def text_columns(rows: Sequence[Row], column: str = "") -> list[str]:
    """The columns that may hold the documents; only one if it is named, or has a usual name."""
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    if column:
        return [column] if column in names else []
    for name in TEXT_NAMES:
        if any(isinstance(row.values.get(name), str) for row in rows):
            return [name]
    return [name for name in names if any(value_type(row.values.get(name)) == "text" for row in rows)]


def text_flaw(row: Row | Flaw, column: str) -> Flaw | None:
    """Why a row is no document, if it is none."""
    if isinstance(row, Flaw):
        return row
    value = row.values.get(column)
    if value is None:
        reason = "missing" if column in row.values else "there is no such field"
    elif not isinstance(value, str):
        reason = f"expected text, found {brief(value)} ({type(value).__name__})"
    elif not value.strip():
        reason = "empty"
    elif "\0" in value:
        reason = "a NUL character, which no text has"
    else:
        return None
    return Flaw(row.file, row.line, reason, column, seen=True)


def brief(value: Any) -> str:
    """A value on one line, cut short."""
    return " ".join(_brief.repr(value).split())[:60]


def value_type(value: Any) -> str:
    """What a value is; a cell of a table is what it reads as."""
    if value is None or value == "":
        return "missing"
    if isinstance(value, str):
        if NUMBER.fullmatch(value):
            return "int" if value.strip().lstrip("+-").isdecimal() else "float"
        return "date" if DATE.fullmatch(value) else "text"
    if isinstance(value, bool | int):
        return type(value).__name__
    if isinstance(value, float | Decimal):
        return "float"
    if isinstance(value, date):
        return "date"
    return "object" if isinstance(value, dict) else type(value).__name__


def column_type(kinds: Sequence[str] | set[str]) -> str:
    """What a column is, from the kinds of its values."""
    found = set(kinds) - {"missing"}
    if len(found) < 2:
        return found.pop() if found else "missing"
    if found == {"int", "float"}:
        return "float"
    return "text" if "text" in found and found <= {"text", "int", "float", "date"} else "mixed"
