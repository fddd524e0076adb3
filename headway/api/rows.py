"""Data that are in Python already: rows, tables of pandas or `datasets`; written to a file for runs to read."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.api.settings import plain
from headway.errors import DataError
from headway.resources import save_text

FOLDER = "data"
"""Where rows are kept, inside the folder of the runs: a resumed run reads them again."""
HINT = "a dataset is a file, or a list of dicts or of texts"
PARTS = ("train", "valid", "test")


def is_rows(value: Any) -> bool:
    """Whether a value is a dataset, and not the name of one or settings about it."""
    return not isinstance(value, str | bytes | os.PathLike | Mapping) and isinstance(value, Iterable)


def data_spec(data: Any, folder: Path) -> str:
    """The name of a dataset: as given, or of the file that its rows are written to."""
    if is_rows(data):
        return rows_file(data, folder)
    if not isinstance(data, str | os.PathLike):
        raise DataError("D001", f"data are of type {type(data).__name__}", HINT)
    return os.fspath(data)


def kept_rows(settings: dict[str, Any], out: Path) -> dict[str, Any]:
    """Settings in which every dataset is a file: `data` itself, or train, valid and test inside."""
    data = settings.get("data")
    if is_rows(data):
        return {**settings, "data": {"train": rows_file(data, out / FOLDER)}}
    if not isinstance(data, Mapping):
        return settings
    files = {part: rows_file(data[part], out / FOLDER) for part in PARTS if is_rows(data.get(part))}
    return {**settings, "data": {**data, **files}}


def rows_file(rows: Any, folder: Path) -> str:
    """Write rows to a file that is named by its content: the same rows are the same file."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _records(rows))
    if not text:
        raise DataError("D002", "the dataset has no rows")
    path = folder / f"rows-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_text(str(path), text)
    return str(path)


def _records(rows: Any) -> Iterator[dict[str, Any]]:
    """Rows as plain dicts: of a DataFrame, a `datasets` object, dicts, or texts."""
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # pandas
        rows = rows.to_dict("records")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, str):
            row = {"text": row}
        if not isinstance(row, Mapping):
            raise DataError("D007", f"row {number} is of type {type(row).__name__}", HINT)
        yield {str(key): _value(value, number, key) for key, value in row.items()}


def _value(value: Any, number: int, key: object) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else plain(value)  # arrays and scalars of numpy
    if isinstance(value, float) and not math.isfinite(value):
        return None  # how pandas says that a cell is empty
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise DataError("D007", f"row {number}: {key} is of type {kind}, which no data file can hold") from None
    return value
