"""Blocks of a JSON lines file as columns, parsed by pyarrow in threads; a block that needs care is left to the reader.

A block is taken as columns only where every row is the one that `readers` would give: one object on each line, valid
UTF-8, finite numbers, no key twice, values of one type in a column.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from headway.data.files import lines as stream
from headway.data.files.lines import Lines, open_text
from headway.data.files.readers import Flaw, Found, Row, json_lines, json_row
from headway.jsonfile import JSON_DEPTH

SIZE = 1 << 22
"""Bytes of a block, up to the end of a line."""
THREADS = 2
EXACT_INT = 1 << 53
"""Above it a number with a fraction may have been a large integer."""


@dataclass(frozen=True)
class Block:
    file: str
    line: int
    """The number of the first line."""
    raw: bytes
    """Whole lines."""
    table: Any
    """A pyarrow table with a row for each line; None: use `rows`."""

    def rows(self) -> Found:
        """The rows of a block, one by one."""
        return json_lines(self.file, Lines(BytesIO(self.raw), self.line - 1))

    def row(self, index: int) -> Row | Flaw:
        """One row of a block with a table, as the reader gives it."""
        return json_row(self.file, self.line + index, self._lines[index].decode())

    @cached_property
    def _lines(self) -> list[bytes]:
        return self.raw.split(b"\n")


def json_blocks(path: Path) -> Iterator[Block]:
    """Yield a JSON lines file in blocks, in order."""
    schema: Any = None
    with open_text(path) as file, ThreadPoolExecutor(THREADS) as pool:
        waiting: deque[tuple[int, bytes, Future[Any]]] = deque()
        for line, raw in _cut(file):
            waiting.append((line, raw, pool.submit(_columns, raw, schema)))
            if len(waiting) > THREADS:
                yield (block := _finished(path, *waiting.popleft()))
                schema = schema if block.table is None else _carried(block.table.schema)
        while waiting:
            yield _finished(path, *waiting.popleft())


def _finished(path: Path, line: int, raw: bytes, columns: Future[Any]) -> Block:
    return Block(str(path), line, raw, columns.result())


def _cut(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, about SIZE bytes at a time, with the number of the first; a longer line than ROW_LIMIT ends
    after one byte more, which is what the reader of lines refuses."""
    line, rest = 1, b""
    while part := file.read(SIZE):
        end = part.rfind(b"\n") + 1
        if not end:
            rest = (rest + part)[: stream.ROW_LIMIT + 1]
            continue
        whole, rest = rest + part[:end], part[end:]
        yield line, whole
        line += whole.count(b"\n")
    if rest:
        yield line, rest


def _columns(raw: bytes, schema: Any) -> Any:
    """A block as a table; None where the reader has to look at it."""
    lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    between = raw.count(b"}\n{") + (raw.count(b"}\r\n{") if b"\r" in raw else 0)
    # A line that begins with { after one that ends with } begins a row. As many rows as lines: one row for each.
    if between != lines - 1 or not raw.startswith(b"{") or b"\0" in raw or len(raw) > 8 * SIZE:
        return None
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError:
            return None
    table = _parsed(raw, schema)
    if table is None or table.num_rows != lines or not _sound(table):
        return None
    return table.combine_chunks() if any(column.num_chunks != 1 for column in table.columns) else table


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
        plain = _carried(table.schema)
        return table if plain.equals(table.schema) else parse(plain)
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
