"""A survey of a table by blocks is the survey by rows, whatever the cells hold; and most tables are taken by blocks."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.data.blocks import tables
from headway.data.blocks.tables import RestOfTable, UnreadTable, table_blocks
from headway.data.profile.survey import Survey, survey

ByRows = Callable[[str], Survey]

CELLS = st.text(st.sampled_from('ab ";,\t\n\r0é'), max_size=6) | st.sampled_from(
    ["7", "-1.5", "2024-01-05", "", " ", "some words here", 'a "quoted" word', "a\nb\nc", "1e5", "x" * 41, "\u3000"]
)
LINES = st.sampled_from(
    ['a,"b', '"', "", " ", "a", "a,b,c", '"a"b,c', 'a"b,c', '5" pipe,6" pipe', '"a""b",c', '"a\nb",c', "x\ry,z",
     '"",""', '"",', ",", 'a\t"b ""c"""', '"x"\ty', '"x', 'y"', "caf\udce9,x", "a\0b,c", "\ufeffa,b", "r,s", "t\tu",
     '" a",b']
)  # fmt: skip
ODD = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "deadline": None}
SIZES = st.sampled_from([8, 40, 200, 1 << 22])


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return str(path)


@settings(**ODD, max_examples=100)
@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=25),
    SIZES,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["x.csv", "x.tsv"]),
    st.sampled_from([",", ";"]),
)
def test_what_a_csv_writer_wrote(
    monkeypatch: pytest.MonkeyPatch, by_rows: ByRows, tmp_path: Path,
    rows: list[list[str]], size: int, end: str, name: str, delimiter: str,
) -> None:  # fmt: skip
    text = io.StringIO()
    csv.writer(text, lineterminator=end, delimiter="\t" if name == "x.tsv" else delimiter).writerows(rows)
    spec = write(tmp_path / name, text.getvalue())
    monkeypatch.setattr(tables, "SIZE", size)
    assert survey(spec) == by_rows(spec)


@settings(**ODD, max_examples=150)
@given(st.lists(LINES, max_size=20), SIZES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from("ct"))
def test_what_no_csv_writer_would_write(
    monkeypatch: pytest.MonkeyPatch, by_rows: ByRows, tmp_path: Path,
    lines: list[str], size: int, end: str, header: bool, kind: str,
) -> None:  # fmt: skip
    """Open quotes, quotes inside cells, missing cells, blank lines, bytes that are not UTF-8."""
    names = ["text\tn"] if kind == "t" else ["text,n"]
    spec = write(tmp_path / f"x.{kind}sv", end.join([*(names if header else []), *lines]))
    monkeypatch.setattr(tables, "SIZE", size)
    monkeypatch.setattr("headway.data.files.lines.ROW_LIMIT", 3000)
    assert survey(spec) == by_rows(spec)


def test_a_cell_with_too_many_lines_is_named(monkeypatch: pytest.MonkeyPatch, by_rows: ByRows, tmp_path: Path) -> None:
    rows = [f"row {i},{i}\n" for i in range(50)]
    rows[20] = '"' + "a\n" * 60 + '",7\n'
    spec = write(tmp_path / "x.csv", "text,n\n" + "".join(rows))
    monkeypatch.setattr("headway.data.files.lines.ROW_LIMIT", 1000)
    found = survey(spec)
    assert found.bad_lines[0].split(":")[1] == "22"
    assert found == by_rows(spec)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.tsv"])
def test_ordinary_files_are_taken_by_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Quoted cells with commas, quotes and line breaks; a row with a missing cell costs its block only."""
    rows = [[str(i), f'täxt {i}, "said" she' + "\n and more" * (i % 3), "2024-01-05"] for i in range(600)]
    rows[300] = ["300"]
    text = io.StringIO()
    if name == "x.tsv":
        text.write("".join("\t".join(cells).replace("\n", " ") + "\n" for cells in [["id", "text", "day"], *rows]))
    else:
        csv.writer(text, lineterminator="\n").writerows([["id", "text", "day"], *rows])
    raw = text.getvalue().encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    monkeypatch.setattr(tables, "SIZE", 2048)
    found = [block for block, _ in table_blocks(tmp_path / name, type)]
    assert len(found) > 8
    assert b"".join(block.raw for block in found) == raw.partition(b"\n")[2]
    assert [block.raw.count(b"\n300\n") for block in found if block.table is None] == [1]
    facts = {column.name: column.kind for column in survey(str(tmp_path / name)).columns}
    assert facts == {"id": "int", "text": "text", "day": "date"}


def test_an_open_quote_hands_the_rest_to_the_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [f"{i},text {i}\n" for i in range(1500)]
    rows[200] = '200,"open\n'
    spec = write(tmp_path / "x.csv", "id,text\n" + "".join(rows))
    monkeypatch.setattr(tables, "SIZE", 512)
    *found, rest = [block for block, _ in table_blocks(tmp_path / "x.csv", type)]
    assert isinstance(rest, RestOfTable)
    assert 100 < sum(block.table.num_rows for block in found) <= 200
    assert survey(spec).bad_lines[0].startswith(f"{spec}:202:")
    assert survey(spec).rows == 1499


def test_a_file_without_a_first_row_is_left_to_the_reader(tmp_path: Path) -> None:
    for text in ("", "a,b\n", "a,b\n1\n2,3\n"):
        write(tmp_path / "x.csv", text)
        assert [type(block) for block, _ in table_blocks(tmp_path / "x.csv", type)] == [UnreadTable]


def test_a_mark_for_inches_costs_a_block_only(monkeypatch: pytest.MonkeyPatch, by_rows: ByRows, tmp_path: Path) -> None:
    rows = [f"text {i},{i}\n" for i in range(2000)]
    rows[100] = 'a 5" pipe,100\n'
    spec = write(tmp_path / "x.csv", "text,n\n" + "".join(rows))
    monkeypatch.setattr(tables, "SIZE", 512)
    found = [block for block, _ in table_blocks(tmp_path / "x.csv", type)]
    assert [5 * 512 > len(block.raw) > 3 * 512 for block in found if block.table is None] == [True]
    assert not isinstance(found[-1], RestOfTable)
    assert survey(spec) == by_rows(spec)
    assert survey(spec).rows == 2000
