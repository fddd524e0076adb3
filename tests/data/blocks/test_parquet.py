"""A survey of a parquet file by blocks is the survey by rows, whatever the types; most files are taken by blocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headway.data.blocks import parquet as blocks
from headway.data.blocks.parquet import parquet_blocks
from headway.data.profile.survey import Survey, survey

TEXTS = ["One  two", "one two", "", None, "Ünïcode x", " ", "a\0b", "2024-01-05", "long " * 50, "12"] * 5
BROKEN = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0\7\0\0\0"), pa.py_buffer(b"a\xffbgood")]
)
FAR = pa.array([2**61, 0], pa.timestamp("ms"))
COLUMNS: dict[str, Any] = {
    "texts": pa.array(TEXTS, pa.string()),
    "large": pa.array(TEXTS, pa.large_string()),
    "category": pa.array(TEXTS, pa.string()).dictionary_encode(),
    "int": pa.array([1, 2, None, 2, 1] * 10, pa.int32()),
    "unsigned": pa.array([2**64 - 1, 0] * 25, pa.uint64()),
    "float": pa.array([float("nan"), 0.5] * 25),
    "half": pa.array([1.5] * 50, pa.float16()),
    "bool": pa.array([True, None] * 25),
    "nothing": pa.nulls(50),
    "list": pa.array([["a", None], [], None, ["b"], ["c"]] * 10),
    "long list": pa.array([["a"]] * 50, pa.large_list(pa.string())),
    "struct": pa.array([{"a": 1, "b": None}, None] * 25),
    "date": pa.array([date(2024, 1, 5), None] * 25),
    "time": pa.array([datetime(2024, 1, 5, tzinfo=UTC)] * 50),
    "decimal": pa.array([Decimal("1.50"), Decimal(2)] * 25),
    "bytes": pa.array([b"\xff", b"x"] * 25),
    "map": pa.array([[("a", 1)]] * 50, pa.map_(pa.string(), pa.int64())),
}


def write(path: Path, columns: dict[str, Any], **options: Any) -> str:
    parquet.write_table(pa.table(columns), path, **options)
    return str(path)


@pytest.mark.parametrize("size", [0, 300, 1 << 22])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_of_column(
    monkeypatch: pytest.MonkeyPatch, by_rows: Callable[[str], Survey], tmp_path: Path, name: str, size: int
) -> None:
    spec = write(tmp_path / "x.parquet", {"text": COLUMNS["texts"], name: COLUMNS[name]}, row_group_size=17)
    monkeypatch.setattr(blocks, "SIZE", size)
    monkeypatch.setattr(blocks, "PARQUET_ROWS", 4)
    assert all(block.table is not None for block, _ in parquet_blocks(tmp_path / "x.parquet", type))
    found = survey(spec)
    assert found == by_rows(spec)
    assert (found.rows, found.duplicates > 5, found.bad) == (50, True, 20)


@pytest.mark.parametrize("broken", [BROKEN, FAR, pa.array([[each] for each in [2**61, 0]], pa.list_(FAR.type))])
def test_values_that_python_cannot_hold(by_rows: Callable[[str], Survey], tmp_path: Path, broken: Any) -> None:
    spec = write(tmp_path / "x.parquet", {"text": ["one", "two"], "x": broken}, store_schema=False)
    found = survey(spec)
    assert (found.rows, found.bad) == (1, 1)
    assert found.bad_lines[0].startswith(f"{spec}:1: ")
    assert found == by_rows(spec)


def test_a_row_group_of_long_rows_is_left_out(
    monkeypatch: pytest.MonkeyPatch, by_rows: Callable[[str], Survey], tmp_path: Path
) -> None:
    texts = ["short"] * 10 + [f"{i}" * 5000 for i in range(10)] + ["short"] * 5
    spec = write(tmp_path / "x.parquet", {"text": texts}, row_group_size=5, compression="none", use_dictionary=False)
    monkeypatch.setattr("headway.data.files.lines.ROW_LIMIT", 1000)
    found = survey(spec)
    assert (found.rows, found.bad, found.duplicates) == (15, 2, 14)
    assert [line.split(":")[1] for line in found.bad_lines] == ["11", "16"]
    assert found.repeats[0] == (f"{spec}:2", f"{spec}:1")
    assert found == by_rows(spec)


def test_a_file_without_rows(by_rows: Callable[[str], Survey], tmp_path: Path) -> None:
    spec = write(tmp_path / "x.parquet", {"text": pa.array([], pa.string())})
    assert survey(spec) == by_rows(spec)
