"""Rows and documents: what is written comes back, what is broken is named by file and line, memory stays small."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.files import lines as stream
from headway.data.files import readers as formats
from headway.data.files.lines import Lines, read_as
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows, Document, documents, rows
from headway.errors import DataError, HeadwayError, NotFoundError

Table = tuple[list[str], list[list[str]]]

NAMES = st.text("abcdefghijklmnopqrstuvwxyzéß_", min_size=1, max_size=8).filter(lambda s: s not in ("inf", "nan"))
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@st.composite
def tables(draw: st.DrawFn, cells: st.SearchStrategy[str] = CELLS) -> Table:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return names, draw(st.lists(st.lists(cells, min_size=len(names), max_size=len(names)), max_size=6))


def read(name: str, content: bytes, policy: Any = "stop") -> tuple[list[dict[str, Any]], list[str], BadRows]:
    """Values and places of the rows of a file with this name and content, and what was bad about it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
        bad = BadRows(policy)
        found = list(rows(str(path), bad))
        bad.first = [line.removeprefix(folder + "/") for line in bad.first]
        return [dict(row.values) for row in found], [f"{Path(row.file).name}:{row.line}" for row in found], bad


def refused(name: str, content: bytes) -> DataError:
    with pytest.raises(DataError) as caught:
        read(name, content)
    return caught.value


# --- what is written comes back -----------------------------------------------------------------


@given(tables(), st.sampled_from([",", ";"]), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.booleans())
def test_csv_comes_back(table: Table, delimiter: str, quoting: Any, packed: bool) -> None:
    names, cells = table
    if len(names) == 1:
        delimiter = ","  # nothing shows which other it is
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
    writer.writerows([names, *cells])
    content = b"\xef\xbb\xbf" * packed + text.getvalue().encode()
    values, _, _ = read("x.csv.gz" if packed else "x.csv", content)
    assert values == [dict(zip(names, row, strict=True)) for row in cells]


@given(tables(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), max_size=12)))
def test_tsv_comes_back_from_a_csv_writer(table: Table) -> None:
    names, cells = table
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows([names, *cells])
    values, places, _ = read("x.tsv", text.getvalue().encode())
    assert values == [dict(zip(names, row, strict=True)) for row in cells]
    assert places == [f"x.tsv:{i + 2}" for i in range(len(cells))]


def test_quotes_in_tsv_are_characters() -> None:
    """`"Stop", he said` opens no cell, and two such lines are two rows."""
    lines = ['"Stop", he said\t1', 'he said "stop"\t0', '"Stop"\t1', '"\t0', "5' 10\"\t1"]
    lines += ['"Stop" and "go"\t1', '"so ""called"" art\t0']
    values, _, _ = read("x.tsv", "\n".join(["text\tlabel", *lines]).encode())
    assert [f"{row['text']}\t{row['label']}" for row in values] == lines


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | CELLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CELLS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(CELLS, JSON, max_size=4), max_size=5)


@given(OBJECTS, st.booleans(), st.sampled_from(["x.jsonl", "x.ndjson", "x.jsonl.gz"]))
@settings(max_examples=50)
def test_jsonl_comes_back(objects: list[dict[str, Any]], escaped: bool, name: str) -> None:
    text = "".join(json.dumps(value, ensure_ascii=escaped) + "\n" for value in [*objects, {}])
    values, places, _ = read(name, text.encode())
    assert values == [*objects, {}]
    assert places == [f"{name}:{i + 1}" for i in range(len(objects) + 1)]


@given(OBJECTS, st.sampled_from([None, 0, 2]), st.integers(1, 9))
@settings(max_examples=40)
def test_json_in_chunks_is_json_at_once(objects: list[dict[str, Any]], indent: int | None, chunk: int) -> None:
    """Whatever the chunk, and so wherever a chunk ends, in a number, a string or a character."""
    text = json.dumps(objects, indent=indent, ensure_ascii=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK", chunk)
        values, places, _ = read("x.json", text.encode())
    assert values == json.loads(text) == objects
    starts = [int(place.partition(":")[2]) for place in places]
    assert starts == sorted(starts)
    if indent:
        assert all(text.split("\n")[line - 1].startswith("  {") for line in starts)
        assert len(set(starts)) == len(objects)


@pytest.mark.parametrize("chunk", range(1, 12))
def test_json_flaws_in_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is read to its end, and lines are counted across what is still unread."""
    monkeypatch.setattr(stream, "CHUNK", chunk)
    values, _, bad = read("x.json", b'[12345,\n{"a": 1},\n-7.5e-10]', "skip")
    assert values == [{"a": 1}]
    assert bad.first == ["x.json:1: not a JSON object", "x.json:3: not a JSON object"]
    _, _, bad = read("x.json", b'[{"a": 1},\n{"b":\n"caf\xe9"}]', "skip")
    assert bad.first == [
        "x.json:3: not UTF-8: a byte is 0xe9, which is 'é' with data.encoding=cp1252; the file is read no further"
    ]


def test_a_long_json_value_is_read_in_growing_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at it starts anew, so there must not be many."""

    class Counting(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1) -> bytes:
            self.reads += 1
            return super().read(size)

    monkeypatch.setattr(stream, "CHUNK", 64)
    file = Counting(json.dumps(["x" * 1_000_000]).encode()[1:])
    assert len(stream.JsonText(file).value()[1]) == 1_000_002
    assert file.reads < 20


@given(
    st.lists(st.tuples(CELLS | st.none(), st.integers(-(2**63), 2**63 - 1), st.booleans()), max_size=9), st.booleans()
)
@settings(max_examples=30)
def test_parquet_comes_back(cells: list[tuple[str | None, int, bool]], packed: bool) -> None:
    columns = {"text": [c[0] for c in cells], "n": [c[1] for c in cells], "flag": [c[2] for c in cells]}
    table = pa.table(columns, schema=pa.schema({"text": pa.string(), "n": pa.int64(), "flag": pa.bool_()}))
    raw = io.BytesIO()
    pq.write_table(table, raw, row_group_size=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "PARQUET_ROWS", 2)
        values, places, _ = read("x.parquet.gz" if packed else "x.parquet", raw.getvalue())
    assert values == [dict(zip(columns, row, strict=True)) for row in cells]
    assert [place.partition(":")[2] for place in places] == [str(i + 1) for i in range(len(cells))]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")), st.booleans())
def test_text_comes_back(text: str, mark: bool) -> None:
    name = "x.txt.gz" if mark else "notes"
    content = b"\xef\xbb\xbf" * mark + text.encode()
    if text.strip():
        assert read(name, content)[0] == [{"text": text}]
    else:
        assert "empty" in refused(name, content).message


def test_rows_say_where_they_start() -> None:
    values, places, _ = read("x.csv", b'a,b\n1,"two\nlines"\n\n3,4\n')
    assert values == [{"a": "1", "b": "two\nlines"}, {"a": "3", "b": "4"}]
    assert places == ["x.csv:2", "x.csv:5"]
    assert read("x.jsonl", b'\n{"a":1}\n\n\n{"a":2}')[1] == ["x.jsonl:2", "x.jsonl:5"]
    assert read("x.json", b'[\n{"a":1},\n\n {"a":\n2}, {"a":3}]')[1] == ["x.json:2", "x.json:4", "x.json:5"]


# --- the first line of a table ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "named"),
    [
        ("x.tsv", "a stirring film\t1", False),
        ("x.tsv", "DESC\tmanner\tHow did serfdom leave ?", False),
        ("x.tsv", "DESC\tmanner\tHow did serfdom develop in and then leave", False),
        ("x.tsv", "gj04\t-1.5e3\t\tOur friends", False),
        ("x.tsv", "sentence\tlabel", True),
        ("x.tsv", "index\tsentence 1\tquality of it", True),
        ("x.csv", "3,Wall St. Bears,Reuters", False),
        ("x.csv", "NaN,a", False),
        ("x.csv", "When,How satisfied are you with all that you got?", True),
        ("x.csv", ",text,label", True),
        ("x.csv", " text , label ", True),
        ("x.csv", ",", False),
    ],
)
def test_a_first_line_of_data_is_data(name: str, first: str, named: bool) -> None:
    cells = first.split("\t" if name == "x.tsv" else ",")
    values, places, _ = read(name, f"{first}\n{first}\n".encode())
    numbers = [f"column{i + 1}" for i in range(len(cells))]
    assert places == [f"{name}:{i}" for i in ([2] if named else [1, 2])]
    assert list(values[0]) == (
        [cell.strip() or n for cell, n in zip(cells, numbers, strict=True)] if named else numbers
    )
    assert list(values[0].values()) == cells


# --- what is broken -----------------------------------------------------------------------------


def parquet(**columns: Any) -> bytes:
    raw = io.BytesIO()
    pq.write_table(pa.table(columns), raw)
    return raw.getvalue()


def lines(seventh: bytes, of: bytes = b'{"text": "fine"}', head: bytes = b"") -> bytes:
    return head + b"\n".join([of] * 6 + [seventh] + [of] * 6) + b"\n"


HEAD = b"text,n\n"

BAD = {
    "broken json": ("x.jsonl", lines(b'{"text": "fine"'), "x.jsonl:7: not valid JSON: Expecting", 12),
    "not an object": ("x.jsonl", lines(b'["fine"]'), "x.jsonl:7: not a JSON object", 12),
    "a key twice": ("x.jsonl", lines(b'{"a": 1, "a": 2}'), "x.jsonl:7: not valid JSON: key 'a' twice", 12),
    "not a number": ("x.jsonl", lines(b'{"a": NaN}'), "x.jsonl:7: not valid JSON: NaN", 12),
    "half a pair": ("x.jsonl", lines(b'{"a": "\\ud800"}'), "x.jsonl:7: not UTF-8", 12),
    "deep": ("x.jsonl", lines(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), "x.jsonl:7: JSON nested deeper", 12),
    "deep lists": ("x.jsonl", lines(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"), "x.jsonl:7: JSON nested", 12),
    "a huge int": ("x.jsonl", lines(b'{"a": ' + b"9" * 5000 + b"}"), "x.jsonl:7: not valid JSON: Exceeds", 12),
    "NUL in json": ("x.jsonl", lines(b'{"text": "a\0b"}'), "x.jsonl:7: a NUL byte", 12),
    "Latin-1 json": ("x.jsonl", lines(b'{"text": "caf\xe9"}'), "x.jsonl:7: not UTF-8: byte 14 of the line is 0xe9", 12),
    "too few cells": ("x.csv", lines(b"one", b"a,1", HEAD), "x.csv:8: 1 cell where the first line has 2", 12),
    "too many cells": ("x.csv", lines(b"a,b,c", b"a,1", HEAD), "x.csv:8: 3 cells where the first line has 2", 12),
    "ragged tsv": ("x.tsv", lines(b"a", b"a\t1", b"text\tn\n"), "x.tsv:8: 1 cell", 12),
    "a quote within": ("x.csv", lines(b'"a"b,1', b"a,1", HEAD), "x.csv:8: text after a closing quote", 12),
    "a quote left open": ("x.csv", lines(b'"a,1', b"a,1", HEAD), "x.csv:8: a quote opens here and is never closed", 12),
    "a bare return": ("x.csv", lines(b"a\rb,1", b"a,1", HEAD), "x.csv:8: a carriage return outside quotes", 12),
    "NUL in csv": ("x.csv", lines(b"a\0b,1", b"a,1", HEAD), "x.csv:8: a NUL byte", 12),
    "NUL in tsv": ("x.tsv", lines(b"a\0b\t1", b"a\t1", b"text\tn\n"), "x.tsv:8: a NUL byte", 12),
    "Latin-1 csv": ("x.csv", lines(b"\xe9,1", b"a,1", HEAD), "x.csv:8: not UTF-8: byte 1 of the line is 0xe9", 12),
    "a name twice": ("x.csv", b"a,b,a\n1,2,3\n", "x.csv:1: two columns are called 'a'", 0),
    "a NUL in names": ("x.csv", b"a\0,b\n1,2\n", "x.csv:1: a NUL byte, which no text has, so none of the file", 0),
    "too many names": ("x.csv", b"," * 100_000 + b"\n", "x.csv:1: 100,001 columns", 0),
    "an empty csv": ("x.csv", b"", "x.csv:1: the file is empty", 0),
    "a blank csv": ("x.csv", b"\n\n", "x.csv:1: the file is empty", 0),
    "an empty jsonl": ("x.jsonl", b"", "x.jsonl:1: the file is empty", 0),
    "an empty json": ("x.json", b" ", "x.json:1: the file is empty", 0),
    "an empty text": ("x.txt", b"", "x.txt:1: the file is empty", 0),
    "an empty gz": ("x.txt.gz", b"", "x.txt.gz:1: the file is empty", 0),
    "NUL in text": ("x.md", b"one\ntwo\0\n", "x.md:2: a NUL byte", 0),
    "Latin-1 text": ("x", b"one\ntwo\ncaf\xe9\n", "x:3: not UTF-8: byte 4 of the line is 0xe9", 0),
    "an object": ("x.json", b'\n{"a": 1}', "x.json:2: an object without a list of rows called \"data\"", 0),
    "a number": ("x.json", b"12", "x.json:1: not a list of objects", 0),
    "a list of numbers": ("x.json", b'[{"a": 1},\n12,\n{"a": 3}]', "x.json:2: not a JSON object", 2),
    "json cut short": ("x.json", b'[{"a": 1},\n{"a": 2', "x.json:2: not valid JSON: Expecting", 1),
    "json never ends": ("x.json", b'[{"a": 1},\n{"a": 2}\n', "x.json:3: not valid JSON: a comma or the end", 2),
    "json without comma": ("x.json", b'[{"a": 1}\n{"a": 2}]', "x.json:2: not valid JSON: a comma or the end", 1),
    "json with one comma more": ("x.json", b'[{"a": 1},\n]', "x.json:2: not valid JSON: Expecting value", 1),
    "json and more": ("x.json", b'[{"a": 1}]\n[]', "x.json:2: not valid JSON: something follows", 1),
    "json broken within": ("x.json", b'[{"a": 1},\n{"a":\n nope}]', "x.json:3: not valid JSON: Expecting value", 1),
    "a huge int in a list": ("x.json", b'[{"a": ' + b"9" * 5000 + b'},\n{}]', "x.json:1: not valid JSON: Exceeds", 1),
    "half a character": ("x.json", b'[{"a": 1}]\n\xc3', "x.json:2: not UTF-8: a byte is 0xc3", 1),
    "deep json": ("x.json", b'[\n{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}]", "x.json:2: JSON nested", 0),
    "Latin-1 in a list": ("x.json", b'[{"a": 1},\n{"a": "\xe9"}]', "x.json:2: not UTF-8: a byte is 0xe9", 1),
    "not UTF-8 in parquet": (
        "x.parquet",
        parquet(text=pa.array([b"fine", b"caf\xe9", b"fine"], pa.binary()).view(pa.string())),
        "x.parquet:2: a value that Python cannot hold",
        2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_stops_or_is_counted(case: str) -> None:
    """With file and line both ways; what follows it is read when it is skipped."""
    name, content, said, good = BAD[case]
    place, _, reason = said.partition(": ")
    error = refused(name, content)
    empty = "the file is empty" in reason
    assert error.code == ("D002" if empty else "D003" if "not UTF-8: " in reason and "byte" in reason else "D007")
    assert f"{name} {'row' if 'parquet' in name else 'line'} {place.rpartition(':')[2]}: {reason}" in error.message
    assert empty == (error.hint == "")  # nothing would be left
    assert empty or "data.bad_rows=skip leaves such rows out; headway data /" in error.hint
    assert (error.code == "D003") == ("data.encoding" in error.hint)
    assert max(map(len, str(error).splitlines())) <= 300
    values, _, bad = read(name, content, "skip")
    assert (len(values), bad.count, len(bad.first)) == (good, 1, 1)
    assert bad.first[0].startswith(said)


@pytest.mark.parametrize(
    "seventh", [b'"a,1', b'a,"1', b'"a"b,1', b'a,"1\n\n\n"x,1', b'""",1', b'a,""1"', b'"a,"b","'], ids=repr
)
@pytest.mark.parametrize("of", [b"a,1", b'"a",1', b'"a ""b""",1'], ids=repr)
def test_a_broken_quote_costs_its_own_lines_only(seventh: bytes, of: bytes) -> None:
    """Whether or not a later quote closes what it opened."""
    values, _, bad = read("x.csv", lines(seventh, of, HEAD), "skip")
    assert 12 <= len(values) <= 13
    assert 1 <= bad.count <= 3
    assert {int(line.split(":")[1]) for line in bad.first} <= set(range(8, 9 + seventh.count(b"\n")))
    assert values[:6] == values[-6:] == [values[0]] * 6


def test_a_quote_left_open_is_given_up_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ROW_LIMIT", 50)
    content = lines(b'"a,1', b"a,1", HEAD) + b"".join(b"a,%d\n" % i for i in range(100)) + b'b",1\n'
    values, places, bad = read("x.csv", content, "skip")
    assert bad.first == ["x.csv:8: a quote opens here and is never closed"]
    assert [row["n"] for row in values] == ["1"] * 12 + [str(i) for i in range(100)] + ["1"]
    assert places == [f"x.csv:{i}" for i in range(2, 116) if i != 8]


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.json"])
def test_a_row_larger_than_the_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ROW_LIMIT", 1000)
    monkeypatch.setattr(stream, "CHUNK", 100)
    long = "a" * 3000
    content = {
        "x.csv": f"text\n{long}\nfine\n",
        "x.tsv": f"text\n{long}\nfine\n",
        "x.jsonl": f'{{}}\n{{"a": "{long}"}}\n{{}}\n',
        "x.json": f'[{{}},\n{{"a": "{long}"}},\n{{}}]',
    }[name]
    values, _, bad = read(name, content.encode(), "skip")
    assert bad.count == 1
    assert bad.first[0].startswith(f"{name}:2: ")
    assert "1,000" in bad.first[0]
    assert len(values) == (2 if name == "x.jsonl" else 1)


def test_a_cell_of_ten_megabytes_is_read() -> None:
    cell = "a" * 10_000_000
    assert read("x.csv", f"text,n\n{cell},1\n".encode())[0] == [{"text": cell, "n": "1"}]
    assert read("x.csv", f'text,n\n"{cell}",1\n'.encode())[0] == [{"text": cell, "n": "1"}]
    assert read("x.tsv", f"text\tn\n{cell}\t1\n".encode())[0] == [{"text": cell, "n": "1"}]
    assert read("x.jsonl", f'{{"text": "{cell}"}}'.encode())[0] == [{"text": cell}]


def test_the_csv_module_is_left_able_to_read_what_it_could() -> None:
    before = csv.field_size_limit(10**9)
    try:
        read("x.csv", b"a,b\n1,2\n")
        assert csv.field_size_limit() == 10**9
    finally:
        csv.field_size_limit(before)


# --- files that are not what they seem ----------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["x.txt", "x.csv", "x.tsv", "x.jsonl", "x.json", "x.csv.gz"])
def test_utf16_without_a_mark_is_told_from_text(name: str, encoding: str) -> None:
    """Whatever the policy: a file in the wrong encoding is no bad row."""
    content = 'text,n\n"a cup of tea",1\n'.encode(encoding)
    for policy in ("stop", "skip"):
        with pytest.raises(DataError) as caught:
            read(name, content, policy)
        assert caught.value.code == "D003"
        assert f"{name} line 1, byte 1: {encoding.upper()}" in caught.value.message
        assert f"data.encoding={encoding}" in caught.value.hint
    with read_as(encoding):
        assert (
            read(name, content, "skip")[2].first
            == read(name, content.decode(encoding).encode(encoding), "skip")[2].first
        )


CONTENT = {
    "x.csv": 'text,n\r\né – “tea”,1\r\n"zwei\nZeilen",2\r\n',
    "x.tsv": "text\tn\né – “tea”\t1\n",
    "x.jsonl": '{"text": "é – “tea”"}\n{"text": "b"}\n',
    "x.json": '[{"text": "é – “tea”"}]',
    "x.txt": "é – “tea”\n",
    "x.csv.gz": "text;n\né – “tea”;1\n",
}


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-8-sig", "utf-32"])
@pytest.mark.parametrize("name", CONTENT)
def test_an_encoding_is_followed_and_a_mark_is_seen(name: str, encoding: str) -> None:
    """The rows are those of the same file in UTF-8; with a mark, whatever the setting says."""
    plain = read(name, CONTENT[name].encode())[0]
    raw = CONTENT[name].encode(encoding)
    for setting in (encoding, *(("utf-8", "cp1252") if encoding in ("utf-16", "utf-8-sig", "utf-32") else ())):
        with read_as(setting):
            assert read(name, raw)[0] == plain
    assert "tea" in json.dumps(plain)


def test_a_byte_that_an_encoding_does_not_have_is_a_bad_row() -> None:
    raw = "text\nä\nöl \x81 x\nü\n".encode("latin-1")
    with read_as("cp1252"):
        values, _, bad = read("x.csv", raw, "skip")
    assert [row["text"] for row in values] == ["ä", "ü"]
    assert bad.first == ["x.csv:3: not cp1252: byte 4 of the line is 0x81"]
    with read_as("utf-16"), pytest.raises(DataError, match=r"D003.*x\.csv after line 1: not utf-16"):
        read("x.csv", raw, "skip")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("ein schöner Tag", "cp1252"), ("“quoted”", "cp1252"), ("это просто русский текст", "cp1251")],
)
def test_an_encoding_is_guessed(text: str, encoding: str) -> None:
    bad = read("x.jsonl", json.dumps({"text": text}, ensure_ascii=False).encode(encoding), "skip")[2]
    assert f"data.encoding={encoding}" in bad.first[0]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b"a,b\n1,2\n"), "gzip"),
        (parquet(a=[1]), "parquet"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
    ],
)
def test_a_file_under_a_wrong_name(content: bytes, kind: str) -> None:
    error = refused("x.csv", content)
    assert (error.code, error.message.endswith(f"x.csv is not text but {kind}")) == ("D003", True)
    assert error.hint


def test_text_that_starts_like_an_archive_is_text() -> None:
    assert read("x.txt", b"PAR1 and BZh are names")[0] == [{"text": "PAR1 and BZh are names"}]


def read_raw(name: str, content: bytes) -> tuple[list[Any], HeadwayError]:
    """The rows before an error, and the error; the content is written as it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        found = []
        with pytest.raises(DataError) as caught:
            found.extend(row.values for row in rows(str(path), BadRows("skip")) if found.append(row.values) is None)
        return found, caught.value


JSONL = b"".join(b'{"n": %d, "x": %d}\n' % (i, random.Random(i).getrandbits(99)) for i in range(5000))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.jsonl.gz", gzip.compress(JSONL)[:-5000], "gzip breaks off after"),
        ("x.jsonl.gz", gzip.compress(JSONL)[:-4], "gzip breaks off after"),
        ("x.csv.gz", b"a,b\n1,2\n", "gzip breaks off after 0 unpacked bytes: Not a gzipped file"),
        ("x.txt.gz", gzip.compress(b"text")[:10] + b"\xff" * 20, "gzip breaks off after 0 unpacked bytes: Error -3"),
        ("x.txt.gz", gzip.compress(b"text") + b"rest", "gzip breaks off"),
        ("x.parquet", parquet(a=list(range(1000)))[:-100], "no parquet after row 0"),
        ("x.parquet", parquet(a=[1])[:20], "no parquet after row 0"),
        ("x.parquet", b"", "no parquet after row 0"),
        ("x.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1", "no parquet after row 0"),
        ("x.parquet.gz", gzip.compress(parquet(a=[1]))[:-9], "gzip breaks off"),
        ("x.parquet.gz", gzip.compress(parquet(a=[1])[:-9]), "no parquet"),
    ],
)
def test_a_damaged_file(name: str, content: bytes, said: str) -> None:
    """Whatever the policy; what is whole before the damage still comes out."""
    found, error = read_raw(name, content)
    assert (error.code, error.exit_code) == ("D006", 4)
    assert f"{name} is damaged: {said}" in error.message
    assert "again" in error.hint
    if name == "x.jsonl.gz":
        assert len(found) > 2000
        assert found[0]["n"] == 0


def test_parquet_damaged_in_the_middle() -> None:
    """Every byte of a page flipped in turn gives rows or an error of ours."""
    whole = parquet(text=[f"text {i}" for i in range(50)], n=list(range(50)))
    outcomes = set()
    for at in range(4, len(whole) - 8, 7):
        broken = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        try:
            values, _, bad = read("x.parquet", broken, "skip")
            outcomes.add("rows" if values or bad.count else "none")
        except DataError as error:
            outcomes.add(error.code)
    assert "D006" in outcomes
    assert outcomes <= {"rows", "D006", "none"}


def test_parquet_with_a_name_twice() -> None:
    raw = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), raw)
    assert "same name" in refused("x.parquet", raw.getvalue()).message


def test_a_line_of_text_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text file is one row, whose lines are bounded like those of others; where they are short it may be larger."""
    monkeypatch.setattr(stream, "ROW_LIMIT", 1000)
    for block in (7, 100, 999):
        monkeypatch.setattr(stream, "BLOCK", block)
        fine = b"a\nb b\n" + b"c" * 1000 + b"\n" + b"d\n" * 600
        values, _, bad = read("x.txt", fine, "skip")
        assert [row["text"] for row in values] == [fine.decode()] and not bad.count
        for content in (b"a\nb\n" + b"c" * 3000 + b"\nd", b"a\nb\n" + b"c" * 3000, b"\n\n" + b"c" * 3000 + b"\n\n"):
            error = refused("x.txt", content)
            assert error.code == "D007" and "line 3" in error.message and "1,000 bytes" in error.message


def test_a_parquet_row_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what its row group unpacks to, before any of it is."""
    monkeypatch.setattr(stream, "ROW_LIMIT", 1000)
    raw = io.BytesIO()
    with pq.ParquetWriter(raw, pa.schema([("text", pa.string())]), compression="gzip") as writer:
        for text in ("fine", "a" * 5000, "good"):
            writer.write_table(pa.table({"text": [text]}))
    values, places, bad = read("x.parquet", raw.getvalue(), "skip")
    assert [row["text"] for row in values] == ["fine", "good"] and places == ["x.parquet:1", "x.parquet:3"]
    assert bad.count == 1 and bad.first[0].startswith("x.parquet:2: 1 row of ")


def test_an_object_of_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are few bytes in a file, and many in memory: they are counted before they are read."""
    monkeypatch.setattr(stream, "JSON_VALUES", 1000)
    monkeypatch.setattr(stream, "CHUNK", 100)
    values, _, bad = read("x.json", b'[{"a": 1}, {"a": [' + b"[]," * 4000 + b"1]}]", "skip")
    assert values == [{"a": 1}] and bad.count == 1 and "more than 1,000 values" in bad.first[0]


def test_many_short_lines_in_an_open_quote_count_for_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ROW_LIMIT", 10_000)
    taken: list[int] = []
    original = Lines.push_back

    def watched(self: Lines, lines: list[str]) -> None:
        taken.append(len(lines))
        original(self, lines)

    monkeypatch.setattr(Lines, "push_back", watched)
    read("x.csv", b'text\n"a\n' + b"b\n" * 5000, "skip")
    assert 0 < max(taken) < 10_000 / 60


MEMORY = """
import sys
from pathlib import Path
from headway.data.files.readers import read_file
import pyarrow.parquet

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) << 10

before = peak()
for item in read_file(Path(sys.argv[1])):
    pass
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux does")
@pytest.mark.parametrize(
    "name", ["x.txt", "x.txt.gz", "x.csv", "x.tsv", "x.jsonl", "x.json", "brackets.json", "x.parquet"]
)
def test_one_row_of_300_mb_takes_less_than_512(name: str, tmp_path: Path) -> None:
    size, path = 300_000_000, tmp_path / name
    before, unit, after = {
        "x.txt": (b"", b"a", b""), "x.txt.gz": (b"", b"a", b""), "x.csv": (b"text,n\n", b"a", b",1\n"),
        "x.tsv": (b"text\tn\n", b"a", b"\t1\n"), "x.jsonl": (b'{"text": "', b"a", b'"}\n'),
        "x.json": (b'[{"text": "', b"a", b'"}]'), "brackets.json": (b'[{"a": [', b"[],", b"1]}]"),
        "x.parquet": (b"", b"", b""),
    }[name]  # fmt: skip
    if name == "x.parquet":
        pq.write_table(pa.table({"text": ["a" * size, "b"]}), path, compression="zstd")
    else:
        with gzip.open(path, "wb", 1) if name.endswith("gz") else path.open("wb") as file:
            file.write(before)
            for _ in range(size // 1_000_000):
                file.write(unit * (1_000_000 // len(unit)))
            file.write(after)
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
    path.unlink()
    assert int(done.stdout) < 512_000_000


def test_a_gzip_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "GZIP_FREE", 100_000)
    bomb = gzip.compress(b"a" * 2_000_000, 9)
    assert 2_000_000 / len(bomb) > stream.GZIP_RATIO
    monkeypatch.setattr(stream, "GZIP_RATIO", 100)
    for name in ("x.txt.gz", "x.jsonl.gz", "x.csv.gz", "x.parquet.gz"):
        _, error = read_raw(name, bomb)
        assert error.code == "D006"
        assert f"{name}: {len(bomb):,} bytes unpack to more than" in error.message
        assert "bomb" in error.hint
    small = gzip.compress(b"a" * 90_000, 9)  # dense, but no danger
    assert 90_000 / len(small) > stream.GZIP_RATIO
    with tempfile.TemporaryDirectory() as folder:
        for content in (small, gzip.compress(JSONL)):  # the second is large, but not dense
            path = Path(folder, "x.txt.gz")
            path.write_bytes(content)
            assert len(list(rows(str(path)))) == 1


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")

    def fail(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(NotFoundError, match=r"F001.*x\.csv: cannot be read: Permission denied"):
        list(rows(str(path)))


def test_no_room_to_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet.gz"
    path.write_bytes(gzip.compress(parquet(a=[1])))

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headway.data.files.parquet.shutil.copyfileobj", fail)
    with pytest.raises(HeadwayError, match=r"M002.*No space left on device"):
        list(rows(str(path)))


@given(st.binary(max_size=60), st.sampled_from(["csv", "tsv", "jsonl", "json", "txt", "parquet", "csv.gz"]))
@settings(max_examples=200)
def test_garbage_never_gives_another_error(content: bytes, ending: str) -> None:
    try:
        read(f"x.{ending}", content, "skip")
    except DataError as error:
        assert error.code in ("D003", "D006")


@given(st.text('",;\n\r\t a1', max_size=40), st.sampled_from(["csv", "tsv"]))
@settings(max_examples=200)
def test_garbled_tables_lose_no_line_silently(text: str, ending: str) -> None:
    """Every line that is not blank is the header, in a row, or in a flaw."""
    values, places, bad = read(f"x.{ending}", text.encode(), "skip")
    if not values and bad.count:
        return
    width = {len(row) for row in values}
    assert len(width) <= 1
    numbers = [int(place.split(":")[1]) for place in places]
    assert numbers == sorted(set(numbers))
    if ending == "tsv":
        filled = sum(1 for line in text.split("\n") if line.removesuffix("\r"))
        assert filled - 1 <= len(values) + bad.count <= filled


# --- memory -------------------------------------------------------------------------------------


def csv_lines() -> Iterator[bytes]:
    yield b"text,n\n"
    yield from (b"%014000d,%d\n" % (i, i) for i in range(300))


def json_lines(start: bytes, end: bytes) -> Iterator[bytes]:
    yield start
    yield from (b'{"text": "%014000d"}%s\n' % (i, b"," if end and i < 299 else b"") for i in range(300))
    yield end


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", csv_lines),
        ("x.csv.gz", csv_lines),
        ("x.jsonl.gz", lambda: json_lines(b"", b"")),
        ("x.json", lambda: json_lines(b"[", b"]")),
    ],
)
def test_memory_goes_by_the_row(name: str, content: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", 1) if name.endswith(".gz") else path.open("wb") as file:
        size = sum(file.write(part) for part in content())
    assert size > 4_000_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in rows(str(path)))
        assert (count, tracemalloc.get_traced_memory()[1] < 1_000_000) == (300, True)
    finally:
        tracemalloc.stop()


def test_a_line_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ROW_LIMIT", 10_000)
    (tmp_path / "x.jsonl").write_bytes(b"{}\n" + b"x" * 4_000_000 + b"\n{}\n")
    bad = BadRows("skip")
    tracemalloc.start()
    try:
        assert [row.line for row in rows(str(tmp_path / "x.jsonl"), bad)] == [1, 3]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert bad.count == 1


# --- bad rows -----------------------------------------------------------------------------------


def test_the_first_twenty_are_remembered_and_all_are_counted() -> None:
    _, _, bad = read("x.jsonl", b"nope\n" * 25, "skip")
    assert (bad.count, len(bad.first)) == (25, 20)
    assert [line.split(":")[1] for line in bad.first] == [str(i + 1) for i in range(20)]


def test_rows_before_the_first_bad_one_come_out() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.jsonl")
        path.write_bytes(lines(b"nope"))
        read = rows(str(path))
        assert [next(read).line for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        with pytest.raises(DataError, match="line 7"):
            next(read)


def test_a_name_with_spaces_or_worse_is_quoted() -> None:
    assert "headway data '/" in refused("my file.csv", b"a,b\n1\n").hint
    assert "\n" not in refused("my\nfile.csv", b"").message


# --- documents ----------------------------------------------------------------------------------


def texts(tmp_path: Path, name: str, content: str, column: str = "", bad: BadRows | None = None) -> list[str]:
    (tmp_path / name).write_text(content)
    return [document.text for document in documents(str(tmp_path / name), column, bad)]


def test_a_document_knows_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo")
    (tmp_path / "b.csv").write_text('text,n\n"three\nfour",1\nfive,2\n')
    assert list(documents(str(tmp_path))) == [
        Document("one\ntwo", str(tmp_path / "a.txt"), 1),
        Document("three\nfour", str(tmp_path / "b.csv"), 2),
        Document("five", str(tmp_path / "b.csv"), 4),
    ]


def test_documents_are_in_the_column_of_texts(tmp_path: Path) -> None:
    assert texts(tmp_path, "x.csv", "title,text,more\nA,the words,B\n") == ["the words"]
    assert texts(tmp_path, "x.csv", "title,text,more\nA,the words,B\n", "more") == ["B"]
    assert texts(tmp_path, "x.tsv", "Once upon a time\t1\n") == ["Once upon a time"]
    assert texts(tmp_path, "x.md", "# Once\n", column="story") == ["# Once\n"]


@pytest.mark.parametrize(
    ("third", "reason"),
    [
        ('{"n": 1}', "there is no such field"),
        ('{"text": null}', "missing"),
        ('{"text": 5}', "expected text, found 5 (int)"),
        ('{"text": ["a", "b"]}', "expected text, found ['a', 'b'] (list)"),
        ('{"text": ""}', "empty"),
        ('{"text": " \\n"}', "empty"),
        ('{"text": "a\\u0000b"}', "a NUL character, which no text has"),
    ],
)
def test_a_row_that_is_no_document(tmp_path: Path, third: str, reason: str) -> None:
    content = f'{{"text": "one"}}\n{{"text": "two"}}\n{third}\n{{"text": "four"}}\n'
    with pytest.raises(DataError) as caught:
        texts(tmp_path, "x.jsonl", content)
    assert caught.value.message == f'{tmp_path}/x.jsonl line 3, column "text": {reason}'
    assert (caught.value.code, caught.value.hint) == (
        "D007",
        f"data.bad_rows=skip leaves such rows out; headway data {tmp_path}/x.jsonl --column text shows them",
    )
    bad = BadRows("skip")
    assert texts(tmp_path, "x.jsonl", content, bad=bad) == ["one", "two", "four"]
    assert bad.first == [f'{tmp_path}/x.jsonl:3: column "text": {reason}']


def test_a_long_name_of_a_column_does_not_fill_the_screen(tmp_path: Path) -> None:
    name = "x" * 1000
    with pytest.raises(DataError) as caught:
        texts(tmp_path, "x.jsonl", json.dumps({name: "fine"}) + "\n" + json.dumps({name: ""}))
    assert "line 2" in caught.value.message
    assert len(caught.value.message) < 300


def test_a_file_that_starts_badly_is_still_read(tmp_path: Path) -> None:
    """Bad rows, however many, do not hide which column holds the text; and they are told in their order."""
    bad = BadRows("skip")
    content = "nope\n" * 150 + '{"story": "one"}\n{"story": 2}\nnope\n'
    assert texts(tmp_path, "x.jsonl", content, bad=bad) == ["one"]
    assert bad.count == 152
    bad = BadRows("skip")
    texts(tmp_path, "x.jsonl", '{"text": "one"}\n{"text": 2}\nnope\n{"text": 4}\n', bad=bad)
    assert [line.split(":")[1] for line in bad.first] == ["2", "3", "4"]


def test_a_column_that_comes_late_is_still_checked(tmp_path: Path) -> None:
    """The rows that are looked at first are no more than that."""
    content = '{"text": "fine"}\n' * 150 + '{"text": 1}\n'
    with pytest.raises(DataError, match="line 151"):
        texts(tmp_path, "x.jsonl", content)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"D002.*no documents"):
        texts(tmp_path, "x.csv", "text,n\n")
    with pytest.raises(DataError, match=r"D002.*no documents \(1 bad row, the first: .*x.jsonl:1: not valid JSON"):
        texts(tmp_path, "x.jsonl", "nope\n", bad=BadRows("skip"))


def test_a_file_that_is_a_row_of_its_own_is_not_shown_again() -> None:
    with pytest.raises(DataError) as caught:
        BadRows().add(Flaw("photos/a.jpg", 0, "cannot be decoded", seen=True))
    assert caught.value.message == "photos/a.jpg: cannot be decoded"
    assert caught.value.hint == "data.bad_rows=skip leaves such rows out"
