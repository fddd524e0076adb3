"""Rows of data files as examples, by a `parse` function; and the policy for rows that cannot be used."""

from __future__ import annotations

import reprlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

from headway.config.recipe import DataConfig
from headway.data.files.columns import TEXT, Role, find_columns
from headway.data.files.digest import fingerprint
from headway.data.files.lines import ENCODING_HINT
from headway.data.files.locate import file_format, find_files
from headway.data.files.readers import EMPTY, Flaw, Row, read_file
from headway.errors import DataError, counted
from headway.jsonfile import show
from headway.progress import track

__all__ = ["BadRows", "Document", "Row", "documents", "find_files", "fingerprint", "rows"]

PEEK = 100
"""Rows of a file that `find_columns` sees."""
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
    """Policy for rows that cannot be used: stop at the first, or skip and count them."""

    policy: Literal["stop", "skip"] = "stop"
    keep: int = 20
    """How many reasons are kept in `first`."""
    setting: str = "data.bad_rows"
    """The setting that changes the policy, for error messages."""
    count: int = 0
    first: list[str] = field(default_factory=list)
    """`file:line: reason` of the first bad rows."""

    def add(self, flaw: Flaw) -> None:
        column = f'column "{show(flaw.column)[:60]}": ' if flaw.column else ""
        where, reason = show(flaw.file), column + flaw.reason
        if self.policy == "stop":
            unit = "row" if file_format(flaw.file)[0] in ("parquet", "sheet") else "line"
            hint = f"{self.setting}=skip leaves such rows out"
            if flaw.code == EMPTY:
                hint = ""
            elif flaw.seen and flaw.line:  # not of a file that is a row of its own
                words = ["headway", "data", where, *(["--column", flaw.column] if flaw.column else [])]
                hint += f"; {shlex.join(words)} shows them"
            if flaw.code == "D003":
                hint = f"{ENCODING_HINT}\n  {hint}"
            place = f"{where} {unit} {flaw.line}" if flaw.line else where  # a file may be a row of its own
            raise DataError(flaw.code, f"{place}{', ' if column else ': '}{reason}", hint)
        self.count += 1
        if len(self.first) < self.keep:
            self.first.append(f"{where}:{flaw.line}: {reason}" if flaw.line else f"{where}: {reason}")

    def no_rows(self, spec: str, what: str) -> DataError:
        """The error if no row could be used."""
        said = f" ({counted(self.count, 'bad rows')}, the first: {self.first[0]})" if self.first else ""
        return DataError("D002", f"{show(spec)}: no {what}{said}"[:280])

    def filter(self, items: Iterable[Item | Flaw], spec: str, what: str) -> Iterator[Item]:
        """Yield the items that are not flaws; no item at all is an error."""
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
    """Yield all rows of a spec in order; a text file is one row with one column, `text`."""
    bad = bad or BadRows()
    for path in find_files(spec):
        for item in track(read_file(path), f"reading {path.name}", unit="rows"):
            if isinstance(item, Row):
                yield item
            else:
                bad.add(item)


def read_examples(
    spec: str,
    roles: Sequence[Role],
    parse: Callable[..., Item | Flaw],
    what: str,
    given: Mapping[str, str] | DataConfig | None = None,
    bad: BadRows | None = None,
) -> Iterator[Item]:
    """Yield an example per row of the spec's files; flaws go to `bad`, and a spec without an example is an error."""
    files = (parse_file(path, roles, parse, given) for path in find_files(spec))
    return (bad or BadRows()).filter(chain.from_iterable(files), spec, what)


def parse_file(
    path: Path,
    roles: Sequence[Role],
    parse: Callable[..., Item | Flaw],
    given: Mapping[str, str] | DataConfig | None = None,
    *,
    strict: bool = True,
) -> Iterator[Item | Flaw]:
    """Yield `parse(row, *columns)` for each row of a file, with one column per role; see `find_columns`."""
    items, first = peek(path)
    if file_format(path)[0] == "text":
        given = None  # its only column is `text`
    columns = find_columns(path, [row.values for row in first], roles, given, strict=strict)
    for item in track(items, f"reading {path.name}", unit="rows"):
        yield item if isinstance(item, Flaw) else parse(item, *columns)


def documents(spec: str, column: str = "", bad: BadRows | None = None) -> Iterator[Document]:
    """Yield one document per text file and one per row of other files; `column` is found if empty."""

    def parse(row: Row, text: str) -> Document | Flaw:
        return text_flaw(row, text) or Document(row.values[text], row.file, row.line)

    return read_examples(spec, [TEXT], parse, "documents", {TEXT.setting: column}, bad)


def peek(path: Path) -> tuple[Iterator[Row | Flaw], list[Row]]:
    """Return an iterator over all rows and flaws of a file, and the first rows."""
    items = read_file(path)
    first: list[Row | Flaw] = []
    found: list[Row] = []
    while len(found) < PEEK and len(first) < 100 * PEEK and (item := next(items, None)) is not None:
        first.append(item)
        if isinstance(item, Row):
            found.append(item)
    return chain(first, items), found


def first_rows(spec: str) -> list[Row]:
    """The first rows of a spec's first file; none of a text file."""
    path = find_files(spec)[0]
    return [] if file_format(path)[0] == "text" else peek(path)[1]


def text_flaw(row: Row | Flaw, column: str) -> Flaw | None:
    """The reason why a row's column is not a usable text, if it is not."""
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
    """A value on one line, shortened for a message."""
    return " ".join(_brief.repr(value).split())[:60]
