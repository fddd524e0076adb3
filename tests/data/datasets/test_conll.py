"""Tagged sentences from files: columns and lists, and every flaw by its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headway.data.datasets.conll import sentences
from headway.data.files.rows import BadRows
from headway.errors import ConfigError, DataError

NEWS = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def found(spec: str, words: str = "", tags: str = "") -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    return [(row.words, row.tags, row.line) for row in sentences(spec, words, tags)]


def test_columns_with_the_tag_last(tmp_path: Path) -> None:
    wanted = [(("EU", "rejects"), ("I-ORG", "O"), 3), (("Peter", "Blackburn"), ("I-PER", "I-PER"), 6)]
    assert found(write(tmp_path / "a.conll", NEWS)) == wanted
    (tmp_path / "eng.train.gz").write_bytes(gzip.compress(NEWS.encode()))
    assert found(str(tmp_path / "eng.train.gz")) == wanted
    assert found(write(tmp_path / "crlf.txt", NEWS.replace("\n", "\r\n"))) == wanted


def test_columns_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", NEWS)
    assert found(path, tags="2")[0][1] == ("NNP", "VBZ")
    assert found(path, words="2", tags="4")[0][:2] == (("NNP", "VBZ"), ("I-ORG", "O"))
    with pytest.raises(ConfigError, match="C003"):
        found(path, tags="ner")


def test_tabs_keep_spaces_in_words(tmp_path: Path) -> None:
    assert found(write(tmp_path / "a.tsv", "New York\tB-LOC\nis\tO\n")) == [(("New York", "is"), ("B-LOC", "O"), 1)]


def test_blank_lines_of_any_number_and_white_space(tmp_path: Path) -> None:
    assert [row[2] for row in found(write(tmp_path / "a.txt", "\n \nA O\n\n \t \nB O\n"))] == [3, 6]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("alone", "1 column where the first line has 2"), ("a b c", "3 columns"), ("word\t ", "an empty word or tag")],
)
def test_a_flawed_line_takes_its_sentence_with_it(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "a.conll", f"A O\n\nB O\n{line}\nC O\n\nD O\n")
    with pytest.raises(DataError, match=rf"a\.conll line 4: {reason}"):
        found(path)
    bad = BadRows("skip")
    assert [row.words for row in sentences(path, bad=bad)] == [("A",), ("D",)]
    assert bad.count == 1 and "a.conll:4: " in bad.first[0]


def test_texts_are_no_words(tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_text("a film that is far too long\t0\nNew York City Hall\t1\n")
    with pytest.raises(DataError, match=r"reviews\.tsv line 1: 'a film .* classify"):
        list(sentences(str(path)))


def test_one_column_is_no_tagged_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a word and its tag need two"):
        found(write(tmp_path / "a.txt", "just\nwords\n"))


def test_what_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_bytes(b"A O\n\nB\xff O\nC O\n\nD O\n")
    bad = BadRows("skip")
    assert [row.words for row in sentences(str(tmp_path / "a.conll"), bad=bad)] == [("A",), ("D",)]
    assert "a.conll:3: not UTF-8" in bad.first[0]


@pytest.mark.parametrize("names", [("tokens", "ner_tags"), ("words", "tags"), ("words", "labels")])
def test_lists(tmp_path: Path, names: tuple[str, str]) -> None:
    row = {"id": 7, names[0]: ["Paris", "is"], names[1]: ["B-LOC", "O"]}
    path = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    assert found(path) == [(("Paris", "is"), ("B-LOC", "O"), 1)]


def test_lists_by_name(tmp_path: Path) -> None:
    row = {"tokens": ["x"], "tags": ["O"], "pos": ["NN"], "forms": ["y"]}
    path = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    assert found(path, words="forms", tags="pos") == [(("y",), ("NN",), 1)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "2 words but 1 tag"),
        ({"tokens": ["a"], "tags": [3]}, r"3 \(int\) in a list"),
        ({"tokens": ["a"]}, '"tags": missing'),
        ({"tokens": "a b", "tags": ["O"]}, '"tokens": expected a list'),
        ({"tokens": [], "tags": []}, "empty"),
        ({"tokens": [" "], "tags": ["O"]}, "an empty word or tag"),
    ],
)
def test_flawed_rows_are_named(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    good = {"tokens": ["a"], "tags": ["O"]}
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, (good, row, good))))
    with pytest.raises(DataError, match=rf"a\.jsonl line 2.*{reason}"):
        found(path)
    bad = BadRows("skip")
    assert len(list(sentences(path, bad=bad))) == 2 and bad.count == 1


def test_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sentences"):
        found(write(tmp_path / "a.conll", "-DOCSTART- O\n\n"))
