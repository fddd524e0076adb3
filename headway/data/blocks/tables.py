"""Blocks of a csv or tsv file, parsed by pyarrow; a block that needs care is left to the reader.

A block is taken as columns only where every row is the one that `readers` would give: quotes only around whole cells,
and twice inside them; no blank line, no lone carriage return, as many cells in each row as there are columns.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway.data.blocks.block import SIZE, Look, Result, in_threads
from headway.data.files import lines as stream
from headway.data.files.lines import LINE_COST, BadLine, Lines, open_text
from headway.data.files.locate import file_format
from headway.data.files.readers import (
    UNCLOSED,
    Found,
    Record,
    Row,
    csv_delimiter,
    read_file,
    rows_under,
    table_records,
)

Places = NDArray[np.int64]
TAB = "\t"
LONGEST = 4
"""Times SIZE after which a block ends inside what quotes say is a record: a quote may be a mark for inches."""
WIDEST = 1000
"""Columns of a table that is worth taking as columns."""


@dataclass(frozen=True)
class TableBlock:
    file: str
    names: Sequence[str] = ()
    delimiter: str = ","
    line: int = 1
    """The number of the first line."""
    start: int = 0
    """Where the block starts in the file, in bytes."""
    raw: bytes = b""
    """Whole records."""
    last: bool = False
    table: Any = None
    lines: Places = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def rows(self) -> Found:
        return rows_under(self.names, self.file, self._records)

    def row(self, index: int) -> Row:
        values = {name: self.table[name][index].as_py() for name in self.names}
        return Row(values, self.file, int(self.lines[index]))

    @property
    def whole(self) -> bool:
        """Whether the reader too ends a record where the block ends. If not, it has an open quote there."""
        if self.table is not None or not self.raw.endswith(b"\n"):
            return self.raw.endswith(b"\n")
        return not any(isinstance(cells, BadLine) and cells.reason == UNCLOSED for _, cells in self._records)

    @cached_property
    def _records(self) -> list[Record]:
        return list(table_records(Lines(BytesIO(self.raw), self.line - 1), self.delimiter))


class RestOfTable(TableBlock):
    """The rows from the start of a block to the end of the file."""

    def rows(self) -> Found:
        with open_text(Path(self.file)) as file:
            left = self.start
            while left and (part := file.read(min(left, SIZE))):
                left -= len(part)
            records = table_records(Lines(file, self.line - 1), self.delimiter)
            yield from rows_under(self.names, self.file, records)


class UnreadTable(TableBlock):
    """All rows of a file."""

    def rows(self) -> Found:
        return read_file(Path(self.file))


def table_blocks(path: Path, look: Look[Result]) -> Iterator[tuple[TableBlock, Result]]:
    """Yield the blocks of a csv or tsv file, each with what `look` makes of its table."""
    first = next(read_file(path), None)
    if not isinstance(first, Row):  # the file is empty or its first row is bad: the reader knows what to do
        yield UnreadTable(str(path)), look(None)
        return
    names = list(first.values)
    with open_text(path) as file:
        delimiter = TAB if file_format(path)[0] == "tsv" else csv_delimiter(file)
        skipped = sum(len(part) for part in _raw_lines(file, first.line - 1))
        blocks = (
            TableBlock(str(path), names, delimiter, *piece) for piece in _cut(file, delimiter, first.line, skipped)
        )
        for block, seen in in_threads(partial(_parse, block, look) for block in blocks):
            if block.last or block.whole:
                yield block, seen
                continue
            yield RestOfTable(str(path), names, delimiter, block.line, block.start), look(None)
            return


def _raw_lines(file: BinaryIO, count: int) -> Iterator[bytes]:
    """Yield the parts of some lines."""
    while count and (part := file.readline(SIZE)):
        count -= part.endswith(b"\n")
        yield part


def _cut(file: BinaryIO, delimiter: str, line: int, start: int) -> Iterator[tuple[int, int, bytes, bool]]:
    """Yield the first line and the first byte of a block, its bytes, which are whole records where quotes are closed,
    and whether it is the last."""
    rest = b""
    while part := file.read(SIZE):
        rest += part
        end = _record_end(rest, delimiter)
        if not end and len(rest) < LONGEST * SIZE:
            continue
        end = end or rest.rfind(b"\n") + 1 or len(rest)
        whole, rest = rest[:end], rest[end:]
        yield line, start, whole, False
        line, start = line + whole.count(b"\n"), start + len(whole)
    if rest:
        yield line, start, rest, True


def _record_end(raw: bytes, delimiter: str) -> int:
    """Where the last line ends that is not inside quotes; 0 if there is none."""
    if delimiter == TAB or b'"' not in raw:
        return raw.rfind(b"\n") + 1
    data = np.frombuffer(raw, dtype=np.uint8)
    ends = _outside(np.flatnonzero(data == ord("\n")), np.flatnonzero(data == ord('"')))
    return int(ends[-1]) + 1 if len(ends) else 0


def _outside(places: Places, quotes: Places) -> Places:
    outside: Places = places[np.searchsorted(quotes, places) % 2 == 0]
    return outside


def _parse(block: TableBlock, look: Look[Result]) -> tuple[TableBlock, Result]:
    lines = _row_lines(block.raw, block.delimiter) if len(block.names) <= WIDEST else None
    table = None if lines is None else _columns(block.raw, block.names, block.delimiter, len(lines))
    found = block if table is None or lines is None else replace(block, table=table, lines=block.line + lines)
    return found, look(table)


def _row_lines(raw: bytes, delimiter: str) -> Places | None:
    """The line of each row, counted from 0; None where the reader has to look at the block."""
    data = np.frombuffer(raw, dtype=np.uint8)
    breaks = ends = np.flatnonzero(data == ord("\n"))
    if delimiter == TAB:
        if raw.startswith(b'"') or b'\t"' in raw or b'\n"' in raw:  # a cell that a csv writer may have quoted
            return None
    elif b'"' in raw:
        quotes = np.flatnonzero(data == ord('"'))
        if not _regular(raw, quotes, delimiter):
            return None
        ends = _outside(breaks, quotes)
    if b"\r" in raw and not np.isin(np.flatnonzero(data == ord("\r")) + 1, ends).all():
        return None
    if not raw.endswith(b"\n"):
        ends = np.append(ends, len(raw))
    starts = np.append(0, ends[:-1] + 1)
    lines = np.searchsorted(breaks, starts)
    costs = ends - starts + 1 + LINE_COST * (np.searchsorted(breaks, ends) - lines)
    blank = np.isin(data[starts], (ord("\r"), ord("\n")))
    odd = b"\0" in raw or raw.startswith(BOM_UTF8)  # pyarrow would drop a byte order mark
    return None if odd or blank.any() or (costs > stream.ROW_LIMIT).any() else lines


def _regular(raw: bytes, quotes: Places, delimiter: str) -> bool:
    """Whether quotes stand around whole cells, or twice for one inside such a cell."""
    around = np.frombuffer(b"\n" + raw + b"\n", dtype=np.uint8)  # a block begins and ends with a record
    beside = np.zeros(256, dtype=bool)
    beside[list(f'{delimiter}\r\n"'.encode())] = True
    before, after = around[quotes[0::2]], around[quotes[1::2] + 2]
    return len(quotes) % 2 == 0 and bool(beside[before].all() and beside[after].all())


def _columns(raw: bytes, names: Sequence[str], delimiter: str, rows: int) -> Any:
    """A block as a table of texts; None where the reader has to look at it."""
    import pyarrow
    from pyarrow import csv

    numbers = [str(i) for i in range(len(names))]
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(raw),
            csv.ReadOptions(column_names=numbers, block_size=len(raw) + 1, use_threads=False),
            csv.ParseOptions(
                delimiter=delimiter, quote_char=False if delimiter == TAB else '"', newlines_in_values=True
            ),
            csv.ConvertOptions(column_types=dict.fromkeys(numbers, pyarrow.string()), null_values=[]),
        )
    except pyarrow.ArrowInvalid:  # another number of cells, or no UTF-8
        return None
    return table.rename_columns(list(names)).combine_chunks() if table.num_rows == rows else None
