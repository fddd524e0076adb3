"""Blocks of a JSON lines file, parsed by pyarrow; a block that needs care is left to the reader.

A block is taken as columns only where every row is the one that `readers` would give: one object on each line, valid
UTF-8, finite numbers, no key twice, values of one type in a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headway.data.blocks.block import SIZE, Look, Result, in_threads, is_utf8
from headway.data.files import lines as stream
from headway.data.files.lines import Lines, open_text
from headway.data.files.readers import Flaw, Found, Row, json_lines, json_row
from headway.jsonfile import JSON_DEPTH

EXACT_INT = 1 << 53
"""Above it a number with a fraction may have been a large integer."""


@dataclass(frozen=True)
class JsonBlock:
    file: str
    line: int
    """The number of the first line."""
    raw: bytes
    """Whole lines."""
    table: Any

    @property
    def lines(self) -> NDArray[np.int64]:
        return self.line + np.arange(self.table.num_rows)

    def rows(self) -> Found:
        return json_lines(self.file, Lines(BytesIO(self.raw), self.line - 1))

    def row(self, index: int) -> Row | Flaw:
        return json_row(self.file, self.line + index, self._lines[index].decode())

    @cached_property
    def _lines(self) -> list[bytes]:
        return self.raw.split(b"\n")


def json_blocks(path: Path, look: Look[Result]) -> Iterator[tuple[JsonBlock, Result]]:
    """Yield the blocks of a JSON lines file, each with what `look` makes of its table."""
    schema: Any = None

    def jobs(file: BinaryIO) -> Iterator[Callable[[], tuple[JsonBlock, Result]]]:
        for line, count, raw in _cut(file):
            yield partial(_parse, str(path), line, count, raw, schema, look)

    with open_text(path) as file:
        for block, seen in in_threads(jobs(file)):
            schema = schema if block.table is None else _carried(block.table.schema)
            yield block, seen


def _parse(file: str, line: int, count: int, raw: bytes, schema: Any, look: Look[Result]) -> tuple[JsonBlock, Result]:
    table = _columns(raw, count, schema)
    return JsonBlock(file, line, raw, table), look(table)


def _cut(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number of the first line, the number of lines, and whole lines of about SIZE bytes; a longer line than
    ROW_LIMIT ends after one byte more, which is what the reader of lines refuses."""
    line, rest = 1, b""
    while part := file.read(SIZE):
        end = part.rfind(b"\n") + 1
        if not end:
            rest = (rest + part)[: stream.ROW_LIMIT + 1]
            continue
        whole, rest = rest + part[:end], part[end:]
        count = int(np.count_nonzero(np.frombuffer(whole, dtype=np.uint8) == ord("\n")))
        yield line, count, whole
        line += count
    if rest:
        yield line, 1, rest


def _columns(raw: bytes, lines: int, schema: Any) -> Any:
    """A block as a table; None where the reader has to look at it."""
    if not raw.startswith(b"{") or b"\0" in raw or len(raw) > 8 * SIZE or not _row_on_each_line(raw):
        return None
    if not raw.isascii() and not is_utf8(raw):
        return None
    table = _parsed(raw, schema)
    if table is None or table.num_rows != lines or not _sound(table):
        return None
    return table.combine_chunks() if any(column.num_chunks != 1 for column in table.columns) else table


def _row_on_each_line(raw: bytes) -> bool:
    """Whether a line ends with } and the next one begins with {: as many rows as lines then mean one row on each."""
    data = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(data[:-1] == ord("\n"))
    last = data[ends - 1]
    if b"\r" in raw:
        last = np.where(last == ord("\r"), data[ends - 2], last)
    return bool((last == ord("}")).all() and (data[ends + 1] == ord("{")).all())


def _parsed(raw: bytes, schema: Any) -> Any:
    import pyarrow
    from pyarrow import json

    options = json.ReadOptions(use_threads=False, block_size=len(raw) + 1)

    def parse(known: Any) -> Any:
        return json.read_json(pyarrow.BufferReader(raw), options, json.ParseOptions(explicit_schema=known))

    try:
        if schema is not None:
            try:
                return parse(schema)
            except pyarrow.ArrowException:  # a column that now has another type
                pass
        table = parse(None)
        if any(_plain(field.type) != field.type for field in table.schema):
            table = parse(_carried(table.schema)).select(table.column_names)  # in the order of their appearance
        return table
    except pyarrow.ArrowException:
        return None


def _carried(schema: Any) -> Any:
    """The schema for the next block: texts that look like dates stay texts, columns without a value are left open."""
    import pyarrow

    found = [field.with_type(_plain(field.type)) for field in schema if field.type != pyarrow.null()]
    return pyarrow.schema(found)


def _plain(kind: Any) -> Any:
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind):
        return pyarrow.string()
    if types.is_list(kind):
        return pyarrow.list_(_plain(kind.value_type))
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _sound(table: Any) -> bool:
    """Whether all values are what Python's parser gives: finite numbers, no large integers, texts as texts."""
    return all(_sound_values(chunk) for column in table.columns for chunk in column.chunks)


def _sound_values(values: Any, depth: int = 1) -> bool:
    import numpy as np
    from pyarrow import types

    kind = values.type
    if depth >= JSON_DEPTH or types.is_timestamp(kind):
        return False
    if types.is_floating(kind):
        numbers = np.abs(values.drop_null().to_numpy(zero_copy_only=False))
        return bool(np.isfinite(numbers).all() and (numbers < EXACT_INT).all())
    if types.is_list(kind):
        return _sound_values(values.flatten(), depth + 1)
    if types.is_struct(kind):
        return all(_sound_values(part, depth + 1) for part in values.flatten())
    return True
