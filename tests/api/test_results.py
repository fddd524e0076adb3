"""Files of results: all columns of all rows, values of any kind, nothing half-written, memory that does not grow."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from headway.api import results
from headway.api.results import open_results
from headway.errors import MemoryOrDiskError

ROWS = [
    {"line": 1, "label": "a", "p": 0.5, "mixed": 1, "vector": [0.25, 1.0], "none": None},
    {"line": 2, "label": None, "p": 1, "mixed": "x", "vector": [2.5], "late": {"a": [1, "é"]}, "none": None},
    {"line": 3, "label": 'quo"ted\nline', "p": 0, "mixed": [1], "vector": [], "none": None},
]


def test_a_csv_has_all_columns(tmp_path: Path) -> None:
    with open_results(str(tmp_path / "a.csv")) as write:
        write(ROWS[:1])
        write(ROWS[1:])
    (tmp_path / "plain").touch()
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "a.csv").read_text().splitlines()[:3] == [
        "line,label,p,mixed,vector,none,late",
        '1,a,0.5,1,"[0.25, 1.0]",,',
        '2,,1,x,[2.5],,"{""a"": [1, ""é""]}"',
    ]


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_a_parquet_file_keeps_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Whatever rows are converted together: integers among fractions, JSON where values have no common type."""
    monkeypatch.setattr(results, "BATCH", batch)
    with open_results(str(tmp_path / "a.parquet")) as write:
        write(ROWS)
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    assert file.num_row_groups == -(-3 // batch)
    found = file.read().to_pylist()
    assert [row["line"] for row in found] == [1, 2, 3]
    assert [row["p"] for row in found] == [0.5, 1.0, 0.0]
    assert [row["vector"] for row in found] == [[0.25, 1.0], [2.5], []]
    assert [row["mixed"] for row in found] == ["1", '"x"', "[1]"]
    assert [row["none"] for row in found] == [None] * 3
    assert found[0]["late"] is None and "é" in str(found[1]["late"])


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), open_results(str(tmp_path / "a.jsonl")) as write:
            write(ROWS)
            raise error
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(MemoryOrDiskError, match=r"M002.*No space left"), open_results(str(tmp_path / "a.csv")) as write:
        write(ROWS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, suffix: str) -> None:
    peaks = []
    for rows in (2000, 20_000):
        tracemalloc.start()
        with open_results(str(tmp_path / f"a{suffix}")) as write:
            for i in range(0, rows, 100):
                write({"line": i + j, "text": f"some text of row {i + j} " * 4} for j in range(100))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_rows_on_stdout_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with open_results("") as write:
        write(ROWS)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
