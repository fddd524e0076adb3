"""Labelled rows: columns named and guessed, labels of all kinds, and rows that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.config.recipe import DataConfig
from headway.data.datasets.labeled import (
    LabeledText,
    hold_out,
    label_kind,
    label_set,
    parse_labels,
    read_labeled,
    with_known_labels,
)
from headway.data.files.rows import BadRows
from headway.data.synthetic.texts.reviews import make_reviews
from headway.errors import DataError


def put(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def read(spec: str, bad: BadRows | None = None, **data: Any) -> list[tuple[str, str | None, Any]]:
    return [(r.text, r.pair, r.label) for r in read_labeled(spec, DataConfig(**data), bad or BadRows())]


def test_columns_without_names_are_found_by_what_they_hold(tmp_path: Path) -> None:
    spec = put(tmp_path, "a.tsv", "a fine film indeed , really\t1\nso dull\t0\n")
    assert read(spec) == [("a fine film indeed , really", None, "1"), ("so dull", None, "0")]


def test_columns_are_those_of_the_recipe(tmp_path: Path) -> None:
    spec = put(tmp_path, "q.tsv", "NUM\tdist\tHow far is it from here ?\nLOC\tcity\tWhere is it ?\n")
    assert read(spec, text="column3", label="column1")[1] == ("Where is it ?", None, "LOC")
    assert read(put(tmp_path, "a.csv", "premise,hypothesis,label\nt0,t1,t2\n")) == [("t0", "t1", "t2")]
    with pytest.raises(DataError) as caught:
        read(put(tmp_path, "a.txt", "a\n"))
    assert caught.value.code == "D004"


def test_bad_rows_are_named_or_counted(tmp_path: Path) -> None:
    lines = [
        {"text": "a", "label": 1},
        {"text": " ", "label": 0},
        {"label": 1},
        {"text": "b"},
        {"text": "c", "label": 0},
    ]
    spec = put(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    with pytest.raises(DataError, match=r'a\.jsonl line 2, column "text": empty'):
        read(spec)
    bad = BadRows("skip")
    assert [row[0] for row in read(spec, bad)] == ["a", "c"]
    assert bad.count == 3
    assert bad.first[1].endswith('a.jsonl:3: column "text": there is no such field')
    assert bad.first[2].endswith('a.jsonl:4: column "label": there is no such field')


def rows(*labels: Any) -> list[LabeledText]:
    return [LabeledText("t", None, label, "f.csv", i + 2) for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["a", "b"], "single"),
        ([1, 2, 5], "single"),
        (["1", "2"], "single"),
        (["1.0", "2"], "single"),
        ([0.5, 2, 3.0], "regression"),
        (["0.5", "2"], "regression"),
        (["0.5", "two"], "single"),
        ([["a"], []], "multi"),
        (["a|b", "a"], "multi"),
        (["a|", "b"], "single"),
        ([True, False], "single"),
        ([0.5, 1.5, "bad"], "regression"),  # a slip among numbers, not a class
        ([0.5, "bad", "good"], "single"),
        ([1, 2, "bad"], "single"),
    ],
)
def test_the_kind_of_labels(labels: list[Any], kind: str) -> None:
    assert label_kind(rows(*labels), "auto") == kind
    assert label_kind(rows(*labels), "multi") == "multi"


def test_lists_in_the_cells_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("""text,labels\none,"[""a"", ""b""]"\ntwo,"['b', 'c']"\nthree,[]\nfour,[x\nfive,[y]\n""")
    found = read_labeled(str(path), DataConfig(), BadRows())
    assert [row.label for row in found] == [["a", "b"], ["b", "c"], [], "[x", "[y]"]
    assert label_kind(found, "auto") == "multi"


def test_other_marks_between_labels_are_asked_about() -> None:
    with pytest.raises(DataError, match=r"D004.*f\.csv line 3: .*'b,c'"):
        label_kind(rows("a", "b,c"), "multi")
    assert label_kind(rows("a", "b,c"), "auto") == "single"
    assert label_kind(rows("a|b", "b,c"), "multi") == "multi"


def test_labels_in_order() -> None:
    single = parse_labels(rows("10", "9", 10.0, "2", " 9 "), "single", BadRows())
    assert label_set(single, "single") == ("2", "9", "10")
    assert label_set(parse_labels(rows("b", "10", "9"), "single", BadRows()), "single") == ("10", "9", "b")
    several = parse_labels(rows(["b", "a", "a"], [], "c|a"), "multi", BadRows())
    assert [row.label for row in several] == [("b", "a"), (), ("c", "a")]
    assert label_set(several, "multi") == ("a", "b", "c")
    assert label_set(parse_labels(rows(1, "2.5"), "regression", BadRows()), "regression") == ("value",)


def test_labels_that_cannot_be_used() -> None:
    bad = BadRows("skip")
    assert len(parse_labels(rows("a", "", ["x"], {"a": 1}), "single", bad)) == 1
    assert bad.first[0] == "f.csv:3: the label: empty"
    assert "found ['x']" in bad.first[1]
    with pytest.raises(DataError, match=r"f\.csv line 3: the label: expected a number, found 'nan'"):
        parse_labels(rows("1.5", "nan"), "regression", BadRows())
    with pytest.raises(DataError, match="no row has a number"):
        parse_labels(rows("x"), "regression", BadRows("skip"))


def test_unknown_labels_are_named() -> None:
    with pytest.raises(DataError, match=r"f\.csv line 3: label 'c' is unknown: training had a, b") as error:
        with_known_labels(rows("a", "c"), ("a", "b"), "single", BadRows())
    assert error.value.code == "D007"
    bad = BadRows("skip")
    assert [r.line for r in with_known_labels(rows("a", "c", "b"), ("a", "b"), "single", bad)] == [2, 4]
    assert bad.count == 1
    assert len(with_known_labels(rows(("a",), ("a", "c")), ("a", "b"), "multi", BadRows("skip"))) == 1


def test_what_is_held_out_does_not_depend_on_order_in_the_file() -> None:
    train, held = hold_out(rows(*["a"] * 50, *["b"] * 50))
    assert len(held) == 10 and len(train) == 90
    assert {r.label for r in held} == {"a", "b"}
    assert {r.line for r in train}.isdisjoint(r.line for r in held)
    assert len(hold_out(rows("a", "b"))[1]) == 1
    with pytest.raises(DataError, match="none can be held out"):
        hold_out(rows("a"))


def test_made_up_reviews_are_decidable_but_not_by_one_word() -> None:
    reviews = make_reviews(400)
    assert reviews == make_reviews(400)
    assert sum(r.label == "positive" for r in reviews) == 200
    from headway.data.synthetic.texts.reviews import BAD, GOOD

    for review in reviews:
        (verdict,) = [part for part in review.text.split(" , ") if part.startswith("i thought")]
        words = verdict.removesuffix(" .").split()
        good = (words[-1] in GOOD) != ("not" in words)
        assert (words[-1] in GOOD) != (words[-1] in BAD)
        assert good == (review.label == "positive")
    for word in ("not", GOOD[0], BAD[0]):
        share = [r.label == "positive" for r in reviews if word in r.text.split()]
        assert 0.15 < sum(share) / len(share) < 0.85
