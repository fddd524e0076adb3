"""Blocks of a parquet file; a block with values that Python cannot hold is left to the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.blocks.block import SIZE, Look, Result, in_threads
from headway.data.files.parquet import batch_rows, parquet_batches
from headway.data.files.readers import PARQUET_ROWS, Flaw, Found, Row, parquet_row


@dataclass(frozen=True)
class ParquetBlock:
    file: str
    first: int
    """The number of the first row."""
    batches: list[Any]
    """As `parquet_batches` yields them."""
    table: Any

    @property
    def lines(self) -> NDArray[np.int64]:
        return self.first + np.arange(self.table.num_rows)

    def rows(self) -> Found:
        number = self.first
        for batch in self.batches:
            for values in batch_rows(batch):
                yield parquet_row(self.file, number, values)
                number += 1

    def row(self, index: int) -> Row | Flaw:
        return parquet_row(self.file, self.first + index, self.table.slice(index, 1).to_pylist()[0])


def parquet_blocks(path: Path, look: Look[Result]) -> Iterator[tuple[ParquetBlock, Result]]:
    """Yield the blocks of a parquet file, each with what `look` makes of its table."""

    def jobs() -> Iterator[Callable[[], tuple[ParquetBlock, Result]]]:
        return (partial(_convert, str(path), first, batches, look) for first, batches in _gathered(path))

    yield from in_threads(jobs())


def _gathered(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of the first row, and batches of about SIZE bytes together; a reason for no batch by itself."""
    first, size, some = 1, 0, list[Any]()
    for number, batch in parquet_batches(path, PARQUET_ROWS):
        alone = isinstance(batch, str)
        if some and (alone or size > SIZE):
            yield first, some
            some = []
        first, size = (first, size) if some else (number, 0)
        if alone:
            yield first, [batch]
        else:
            some.append(batch)
            size += batch.nbytes
    if some:
        yield first, some


def _convert(file: str, first: int, batches: list[Any], look: Look[Result]) -> tuple[ParquetBlock, Result]:
    table = None if isinstance(batches[0], str) else _columns(batches)
    return ParquetBlock(file, first, batches, table), look(table)


def _columns(batches: list[Any]) -> Any:
    """Batches as a table with texts of one type; None where Python cannot hold a value."""
    import pyarrow
    from pyarrow import types

    table = pyarrow.Table.from_batches(batches)
    try:
        table.validate(full=True)  # texts are UTF-8
        for i, field in enumerate(table.schema):
            column = table.column(i)
            if types.is_dictionary(field.type):
                column = column.cast(field.type.value_type)
            if types.is_large_string(column.type) or types.is_string_view(column.type):
                column = column.cast(pyarrow.string())
            if not _plain(column.type):
                column.to_pylist()
            table = table.set_column(i, field.name, column)
    except (pyarrow.ArrowException, ValueError, OverflowError):
        return None
    return table.combine_chunks()


def _plain(kind: Any) -> bool:
    """Whether Python can hold every value of a type."""
    from pyarrow import types

    if types.is_list(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return all(_plain(field.type) for field in kind)
    tests = (types.is_string, types.is_boolean, types.is_integer, types.is_floating, types.is_null)
    return any(test(kind) for test in tests)
