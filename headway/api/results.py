"""Results in a file: JSON lines, csv or parquet by its suffix; complete, or not there at all."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from headway.errors import UsageError
from headway.progress import hidden
from headway.resources import check_writable, replacing, write_error

Json = Mapping[str, Any]
Write = Callable[[Iterable[Json]], None]
BATCH = 1000
"""Rows that are converted together."""


def check_out(path: str) -> None:
    """Refuse a file that results cannot be written to, before they are computed."""
    if Path(path).suffix.lower() not in FORMATS:
        hint = f"end its name in one of {', '.join(FORMATS)}"
        raise UsageError("U001", f"{path}: the suffix says how results are written, and this one is unknown", hint)
    check_writable(Path(path))


def is_table(path: str) -> bool:
    """Whether results go into a file of rows and columns."""
    return Path(path).suffix.lower() in FORMATS.keys() - {".jsonl"}


@contextmanager
def open_results(path: str) -> Iterator[Write]:
    """Yield a function that writes rows to a file, or to stdout for an empty path.

    The file appears when all rows are there. Until then they are in a file beside it that has no name, so an error or
    Ctrl-C leaves nothing behind, and memory does not grow with their number.
    """
    if not path:
        yield _print_rows
        return
    check_out(path)
    try:
        with tempfile.TemporaryFile("w+", dir=Path(path).parent, encoding="utf-8") as spool:
            yield lambda rows: spool.writelines(_line(row) for row in rows)
            with replacing(Path(path)) as partial:
                FORMATS[Path(path).suffix.lower()](partial, spool)
    except OSError as error:
        raise write_error(path, OSError(error.errno, error.strerror)) from None


def _print_rows(rows: Iterable[Json]) -> None:
    with hidden():
        sys.stdout.writelines(_line(row) for row in rows)
        sys.stdout.flush()


def _line(row: Json) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _rows(spool: TextIO) -> Iterator[dict[str, Any]]:
    spool.seek(0)
    return map(json.loads, spool)


def _batches(spool: TextIO) -> Iterator[list[dict[str, Any]]]:
    rows = _rows(spool)
    while batch := list(islice(rows, BATCH)):
        yield batch


def _write_jsonl(path: Path, spool: TextIO) -> None:
    spool.seek(0)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(spool)


def _write_csv(path: Path, spool: TextIO) -> None:
    """A column for each name in any row; lists and objects are JSON in their cell."""
    names = dict.fromkeys(name for row in _rows(spool) for name in row)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        writer.writerow(names)
        writer.writerows([_cell(row.get(name)) for name in names] for row in _rows(spool))


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_parquet(path: Path, spool: TextIO) -> None:
    """Row groups of BATCH rows. A column whose rows have values of different kinds holds JSON."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds: dict[str, Any] = {}
    for batch in _batches(spool):
        for name in dict.fromkeys(name for row in batch for name in row):
            kinds[name] = _common(kinds.get(name, pa.null()), [row.get(name) for row in batch])
    schema = pa.schema([(name, pa.string() if kind in (None, pa.null()) else kind) for name, kind in kinds.items()])
    with ParquetWriter(path, schema) as file:
        for batch in _batches(spool):
            file.write_table(pa.table([_array(batch, name, kinds[name]) for name in kinds], schema=schema))


def _common(kind: Any, values: Sequence[Any]) -> Any:
    """The type of a column so far and of more values; None if they have none in common."""
    import pyarrow as pa

    if kind is None:
        return None
    try:
        fields = [pa.schema([("", each)]) for each in (kind, pa.array(values).type)]
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _array(batch: Sequence[Json], name: str, kind: Any) -> Any:
    import pyarrow as pa

    values = [row.get(name) for row in batch]
    if kind is None:
        return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values])
    return pa.array(values, pa.string() if kind == pa.null() else kind)


FORMATS: dict[str, Callable[[Path, TextIO], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".tsv": _write_csv,
    ".parquet": _write_parquet,
}
