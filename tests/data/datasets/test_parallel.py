"""Pairs of texts from two files and from tables, what does not pair up, and the made-up language."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.data.datasets.parallel import fingerprint_pairs, read_parallel, split_pair_spec
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.translation import ADJECTIVES, NOUNS, VERBS, make_translations
from headway.errors import DataError


def two(folder: Path, source: str, target: str, end: str = "") -> str:
    paths = [folder / f"train.{language}{end}" for language in ("en", "de")]
    for path, text in zip(paths, (source, target), strict=True):
        path.write_bytes(gzip.compress(text.encode()) if end else text.encode())
    return ",".join(map(str, paths))


def table(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read(spec: str, text: str = "", pair: str = "", bad: BadRows | None = None) -> list[tuple[str, tuple[str, ...]]]:
    return [(p.source, p.targets) for p in read_parallel(spec, text, pair, bad or BadRows())]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_two_files_pair_line_by_line(tmp_path: Path, end: str) -> None:
    spec = two(tmp_path, "a dog \r\nthe cat\n", "ein Hund\ndie Katze", end)
    assert read(spec) == [("a dog", ("ein Hund",)), ("the cat", ("die Katze",))]
    assert [(p.line, Path(p.file).name) for p in read_parallel(spec, "", "", BadRows())] == [
        (1, f"train.en{end}"), (2, f"train.en{end}")
    ]  # fmt: skip
    assert fingerprint_pairs(spec) != fingerprint_pairs(",".join(reversed(spec.split(","))))


@pytest.mark.parametrize(("source", "target", "short"), [("a\nb\nc\n", "x\ny\n", "de"), ("a\n", "x\ny\n", "en")])
def test_files_that_do_not_pair_up_are_named(tmp_path: Path, source: str, target: str, short: str) -> None:
    with pytest.raises(DataError) as error:
        read(two(tmp_path, source, target), bad=BadRows("skip"))
    lines = min(source.count("\n"), target.count("\n"))
    assert f"train.{short} ends after {lines:,} lines" in error.value.message
    assert f"line {lines + 1}" in error.value.hint


def test_an_empty_line_keeps_its_place(tmp_path: Path) -> None:
    spec, bad = two(tmp_path, "a\n\nc\n", "x\ny\nz\n"), BadRows("skip")
    assert read(spec, bad=bad) == [("a", ("x",)), ("c", ("z",))]
    assert bad.count == 1 and "train.en:2" in bad.first[0]
    with pytest.raises(DataError, match=r"train\.en line 2"):
        read(spec)


def test_a_line_that_is_no_text(tmp_path: Path) -> None:
    spec = two(tmp_path, "a\nb\n", "x\ny\n")
    (tmp_path / "train.de").write_bytes(b"x\n\xff\n")
    bad = BadRows("skip")
    assert read(spec, bad=bad) == [("a", ("x",))] and "train.de:2" in bad.first[0]


def test_rows_of_a_table(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": "7", "src": "a b", "tgt": "x"}, {"id": "8", "src": "c", "tgt": "y z"}]
    assert read(table(tmp_path, *rows)) == [("a b", ("x",)), ("c", ("y z",))]
    assert read(table(tmp_path, *rows), "tgt", "src")[0] == ("x", ("a b",))
    spec = table(tmp_path, {"source": ["One.", "", " Two."], "target": ["first", "second", " "]})
    assert read(spec) == [("One. Two.", ("first", "second"))]
    nested = table(tmp_path, {"translation": {"en": "a", "de": "x"}}, {"translation": {"en": "b", "de": "y"}})
    assert read(nested) == [("a", ("x",)), ("b", ("y",))]
    assert read(nested, "de", "en") == [("x", ("a",)), ("y", ("b",))]
    path = tmp_path / "rows.tsv"
    path.write_text("foo\tbar\nhello there\tgood day\n", encoding="utf-8")
    assert read(str(path)) == [("hello there", ("good day",))]


@pytest.mark.parametrize("row", [
    {"src": "a", "tgt": ""}, {"src": "a"}, {"src": 3, "tgt": "x"}, {"src": "a", "tgt": []},
    {"src": "a", "tgt": ["", " "]},
])  # fmt: skip
def test_a_row_without_both_sides(tmp_path: Path, row: dict[str, Any]) -> None:
    spec, bad = table(tmp_path, {"src": "a b", "tgt": "x"}, row), BadRows("skip")
    assert read(spec, bad=bad) == [("a b", ("x",))]
    assert bad.count == 1 and "rows.jsonl:2" in bad.first[0]


def test_one_text_file_is_no_pair(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x\n")
    with pytest.raises(DataError, match=r"D004.*a\.txt"):
        read(str(path))
    odd = tmp_path / "a,b.tsv"
    odd.write_text("source\ttarget\nx y\tz\n")
    assert split_pair_spec(str(odd)) is None and read(str(odd)) == [("x y", ("z",))]
    assert split_pair_spec("a,b,c") is None and split_pair_spec("a,") is None


def test_the_made_up_language() -> None:
    pairs = make_translations(500)
    assert pairs == make_translations(500) and pairs != make_translations(500, seed=1)
    assert len({english for english, _ in pairs}) == 500
    back: dict[str, set[str]] = {}
    for english, velmish in pairs:
        words = velmish.lower().rstrip(".").split()
        assert english[0].isupper() and velmish.endswith(".")
        past = any(f" {VERBS[verb][0]}" in english for verb in VERBS) or " did " in english
        assert words[-1].removesuffix("ni").endswith("esu" if past else "is")  # the verb is last
        assert ("ma" in words) == (" not " in english)
        back.setdefault(velmish, set()).add(english)
        for noun, (other, gender) in NOUNS.items():
            for adjective, stem in ADJECTIVES.items():
                if f" {adjective} {noun} " in f" {english.lower().rstrip('.')} ":
                    assert f"{other} {stem}{'ao'[gender]}" in velmish.lower()
    assert max(len(said) for said in back.values()) == 1  # nothing is lost
