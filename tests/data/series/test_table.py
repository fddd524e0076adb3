"""Tables of series: what is read, and what each kind of bad row is called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.config.recipe import DataConfig
from headway.data.files.rows import BadRows
from headway.data.series.table import Table, read_table, read_tables
from headway.errors import DataError

HOURS = [f"2020-01-01 {hour:02}:00" for hour in range(6)]


def read(folder: Path, text: str, *, policy: str = "stop", time: str = "", columns: tuple[str, ...] = ()) -> Table:
    path = folder / "a.csv"
    path.write_text(text)
    return read_table(path, DataConfig(time=time), BadRows(policy), columns)  # type: ignore[arg-type]


def hourly(*cells: str, head: str = "when,y") -> str:
    return head + "\n" + "".join(f"{time},{cell}\n" for time, cell in zip(HOURS, cells, strict=False))


def test_a_table_of_dates_and_numbers(tmp_path: Path) -> None:
    table = read(tmp_path, "date,a,b\n2020-01-01,1,2\n2020-01-02,3,4.5\n")
    assert (table.columns, table.time, str(table.clock)) == (("a", "b"), "date", "1 day")
    assert table.values.tolist() == [[1, 2], [3, 4.5]] and not table.notes


def test_dates_are_found_whatever_their_column_is_called(tmp_path: Path) -> None:
    assert read(tmp_path, hourly("1", "2", head="stamp of it,y")).time == "stamp of it"
    assert read(tmp_path, "a,b\n1,2\n3,4\n").time == ""
    assert read(tmp_path, "a,b\n1,2\n3,4\n", time="a").columns == ("b",)
    with pytest.raises(DataError, match=r"no column 'aa'.*data.time"):
        read(tmp_path, "a,b\n1,2\n3,4\n", time="aa")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("date,y\n2020-01-01,1\n2020-01-02,abc\n", r'a.csv line 3, column "y": expected a number, found \'abc\''),
        ("date,y\n2020-01-01,1\nhello,2\n", r'a.csv line 3, column "date": \'hello\' is no time'),
        ("date,y\n2020-01-01,1\n17,2\n", r"\'17\' is no time, and the rows before it have dates"),
        ("date,y\n2020-01-02,1\n2020-01-01,2\n", r"line 3.* 2020-01-01 00:00:00 is before 2020-01-02 00:00:00"),
        ("date,y\n2020-01-02,1\n2020-01-02,2\n", r"line 3.* 2020-01-02 00:00:00 comes twice"),
        ("date,y\n2020-01-02,1\n2020-01-03,2,3\n", r"line 3: 3 cells where the first line has 2"),
        ("date,y\n2020-01-02,1\n2020-01-03,inf\n", r"line 3.* expected a number, found \'inf\'"),
        ("date,y\n1,1\n2,1\n3,1\n3.5,1\n4,1\n", r"line 5.* 3.5 is not a whole number of steps \(1\) after the first"),
        ("date,y\n", "no rows of numbers"),
        ("date,y,y\n2020-01-01,1,1\n", "line 1: .*twice|line 1: .*y"),
        (hourly("1", "2e100"), "line 3.*too large"),
        ("date,y\n2020-01-01,a\n2020-01-02,b\n", "no column of numbers"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, text)


def test_skipped_rows_leave_a_gap(tmp_path: Path) -> None:
    """And the table stays on its grid: a row that is left out is a missing value, not a shorter series."""
    table = read(tmp_path, hourly("1", "x", "3", "4"), policy="skip")
    assert table.values[:, 0].tolist()[::2] == [1, 3] and np.isnan(table.values[1, 0]) and len(table) == 4


def test_gaps_are_named_with_place_and_length(tmp_path: Path) -> None:
    text = "date,y\n" + "".join(f"2020-01-{day:02},{day}\n" for day in (1, 2, 3, 6, 7, 10))
    table = read(tmp_path, text)
    assert len(table) == 10 and np.flatnonzero(np.isnan(table.values[:, 0])).tolist() == [3, 4, 7, 8]
    assert table.values[5, 0] == 6 and table.clock.shown(table.times)[9] == "2020-01-10"
    (note,) = table.notes
    assert "2 gaps, 4 steps without a row, the first after line 4 (2020-01-03)" in note


def test_far_more_steps_than_rows_are_a_mistake(tmp_path: Path) -> None:
    """One wrong year must not make a table of ten thousand days."""
    with pytest.raises(DataError, match=r"4 rows for 36,5.. steps of 1 day"):
        read(tmp_path, "date,y\n2020-01-01,1\n2020-01-02,1\n2020-01-03,1\n2120-01-03,1\n")


def test_what_is_unusual_is_said(tmp_path: Path) -> None:
    table = read(tmp_path, "date,a,b,c\n2020-01-01,1,5,x\n2020-01-02,,5,y\n2020-01-03,NA,5,z\n2020-01-04,2,5,z\n")
    assert table.columns == ("a", "b") and np.isnan(table.values[1:3, 0]).all()
    notes = " ".join(table.notes)
    assert "missing numbers: a 2" in notes and "constant columns: b" in notes and "left out: c" in notes


def test_columns_by_name(tmp_path: Path) -> None:
    assert read(tmp_path, hourly("1,2", "3,4", head="t,a,b"), columns=("b",)).values[:, 0].tolist() == [2, 4]
    with pytest.raises(DataError, match=r"no column 'bb'.*b"):
        read(tmp_path, hourly("1,2", head="t,a,b"), columns=("bb",))
    with pytest.raises(DataError, match="no column 'z'"):
        read(tmp_path, hourly("1,2", head="t,a,b")).chosen(["z"])


def test_each_file_is_a_table_of_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(hourly("1", "2"))
    assert [len(table) for table in read_tables(f"{tmp_path}/*.csv", DataConfig(), BadRows())] == [2, 2]
