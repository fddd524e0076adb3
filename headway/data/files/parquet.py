"""Parquet files as batches of rows, with a bound on the memory that a batch may take."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from headway.data.files import lines as stream
from headway.data.files.lines import damaged, open_bytes
from headway.data.files.locate import file_format
from headway.errors import counted
from headway.jsonfile import show
from headway.resources import write_error

FEWEST_ROWS = 8
"""Rows of a batch of a large row group, because one cell may be most of it."""


def parquet_batches(path: Path, most: int) -> Iterator[tuple[int, Any]]:
    """Yield batches of up to `most` rows, each with the number of its first row. A string in place of a batch is the
    reason why rows are left out."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number = 0
    with _seekable(path) as file:
        try:
            table = ParquetFile(file)
            names = table.schema_arrow.names
            if len(set(names)) < len(names):
                yield 1, "two columns have the same name, so none of the file is read"
                return
            for group in range(table.num_row_groups):
                about = table.metadata.row_group(group)
                count, size = about.num_rows, about.total_byte_size
                if size > max(1, count) * stream.ROW_LIMIT:  # unpacked: the library would hold it several times
                    yield number + 1, f"{counted(count, 'rows')} of {size:,} bytes; a row may have {stream.ROW_LIMIT:,}"
                    number += count
                    continue
                some = max(FEWEST_ROWS, min(most, most * stream.ROW_LIMIT // (size or 1)))
                for batch in table.iter_batches(batch_size=some, row_groups=[group], use_threads=False):
                    yield number + 1, batch
                    number += len(batch)
        except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
            raise damaged(path, f"no parquet after row {number:,}: {str(error).splitlines()[0]}") from None


def batch_rows(batch: Any) -> list[dict[str, Any] | str]:
    """Return the rows of a batch as dicts; a string in place of a row is the reason it is unusable."""
    import pyarrow

    if isinstance(batch, str):
        return [batch]
    try:
        return list(batch.to_pylist())
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:  # one bad value makes the batch fail: find it
        if len(batch) == 1:
            return [f"a value that Python cannot hold: {str(error)[:80]}"]
        return [row for i in range(len(batch)) for row in batch_rows(batch.slice(i, 1))]


@contextmanager
def _seekable(path: Path) -> Iterator[BinaryIO]:
    """Open a parquet file, which is read from its end: a compressed one is unpacked to disk first."""
    with open_bytes(path) as file:
        if not file_format(path)[1]:
            yield file
            return
        with tempfile.TemporaryFile() as unpacked:
            try:
                shutil.copyfileobj(file, unpacked)
            except OSError as error:
                raise write_error(tempfile.gettempdir(), error, f"has no room to unpack {show(path)}") from None
            yield unpacked
