"""Datasets that are in Python: written once, by content, and read back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from headway.api.inputs import is_rows, kept_rows, rows_file
from headway.errors import DataError

ROWS = [{"text": "a fine film", "label": "good", "n": 1}, {"text": "a dull one", "label": "bad", "n": 2}]


class Dataset:
    """As much of a `datasets.Dataset` as matters: column names, and rows as dicts."""

    column_names = ("text", "label", "n")

    def __iter__(self) -> Any:
        return iter(ROWS)


@pytest.mark.parametrize("rows", [ROWS, tuple(ROWS), pandas.DataFrame(ROWS), Dataset(), (row for row in ROWS)])
def test_all_kinds_of_rows_are_one_file(rows: Any, tmp_path: Path) -> None:
    assert is_rows(rows)
    path = Path(rows_file(rows, tmp_path / "data"))
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == ROWS
    assert rows_file(ROWS, tmp_path / "data") == str(path) and len(list(path.parent.iterdir())) == 1
    assert rows_file(ROWS[:1], tmp_path / "data") != str(path)


def test_texts_and_empty_cells(tmp_path: Path) -> None:
    path = rows_file(["one", "two"], tmp_path)
    assert [json.loads(line)["text"] for line in Path(path).read_text().splitlines()] == ["one", "two"]
    frame = pandas.DataFrame({"text": ["a", None], "score": [np.nan, 0.5], "tags": [np.array(["O"]), ["O", "B"]]})
    found = [json.loads(line) for line in Path(rows_file(frame, tmp_path)).read_text().splitlines()]
    assert found[0] == {"text": "a", "score": None, "tags": ["O"]} and found[1]["text"] is None


@pytest.mark.parametrize(
    ("rows", "code"), [([], "D002"), ([1], "D007"), ([{"a": object()}], "D007"), ([["a"]], "D007")]
)
def test_rows_that_no_file_can_hold(rows: Any, code: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        rows_file(rows, tmp_path)
    assert caught.value.code == code and not list(tmp_path.iterdir())


def test_settings_keep_what_is_no_dataset(tmp_path: Path) -> None:
    assert kept_rows({"data": "x.csv", "seed": 1}, tmp_path) == {"data": "x.csv", "seed": 1}
    assert kept_rows({"data": {"train": "x.csv", "length": 8}}, tmp_path)["data"] == {"train": "x.csv", "length": 8}
    made = kept_rows({"data": {"train": ROWS, "valid": "v.csv"}}, tmp_path)["data"]
    assert made["valid"] == "v.csv" and Path(made["train"]).parent == tmp_path / "data"
    assert not any(map(is_rows, ["x.csv", Path("x"), {"train": "x"}, b"x", 3, None]))
