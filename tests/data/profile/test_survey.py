"""A survey's numbers, each against a slow count; its lines fit a screen."""

from __future__ import annotations

import json
import random
import re
import tracemalloc
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway.data.profile.scan
from headway.data.profile.duplicates import NGRAM, DuplicateIndex, NgramIndex, ngram_hashes
from headway.data.profile.lengths import BINS, LengthCounter, length_statistics
from headway.data.profile.scan import BATCH_TEXTS, split_text
from headway.data.profile.survey import survey
from headway.data.profile.tally import one_line
from headway.data.profile.texts import measure
from headway.data.tokenizers.tokenizer import load_tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import DataError, NotFoundError

WORDS = [f"w{i}" for i in range(400)]


def write(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content)
    return str(folder / name)


def sentence(seed: int, words: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


# --- lengths ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60) | st.integers(0, 10**6), min_size=1))
def test_lengths_from_counts_are_those_of_the_list(lengths: list[int]) -> None:
    found = length_statistics(Counter(lengths))
    assert (found.total, found.min, found.max) == (sum(lengths), min(lengths), max(lengths))
    assert found.mean == pytest.approx(np.mean(lengths))
    in_order = sorted(lengths)
    for quantile, share in ((found.median, 50), (found.p95, 95)):
        assert quantile in lengths
        assert 100 * sum(length <= quantile for length in lengths) >= share * len(lengths)
        below = in_order.index(quantile)  # those shorter are fewer than the share
        assert 100 * below < share * len(lengths)
    assert sum(found.histogram) == len(lengths)
    assert len(found.histogram) == BINS


def test_a_histogram_has_steps_of_equal_ratio() -> None:
    found = length_statistics(Counter({1: 8, 2: 4, 3: 1, 2**15: 2, 2**16 - 1: 1, 2**16: 1}))
    assert found.histogram == (8, 5, *[0] * (BINS - 3), 4)
    assert found.bars() == "█▅" + " " * (BINS - 3) + "▄"
    assert length_statistics(Counter([7, 7])).histogram.count(0) == BINS - 1


def test_a_tally_counts_in_every_unit() -> None:
    tally = LengthCounter()
    for texts in (["äb  c\nd", ""], ["x"]):
        found = measure(pa.array(texts))
        tally.add(characters=found.characters, bytes=found.bytes, words=found.words)
        tally.add(tokens=[2 * len(text) for text in texts])
    found = tally.lengths()
    assert {unit: (of.total, of.min, of.max) for unit, of in found.items()} == {
        "characters": (8, 0, 7),
        "bytes": (9, 0, 8),
        "words": (4, 0, 3),
        "tokens": (16, 0, 14),
    }
    assert LengthCounter().lengths() == {}


# --- duplicates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("A  cup of\ntea", "a cup of tea ", True),
        ("café", "cafe\u0301", True),
        ("Straße", "STRASSE", True),
        ("a cup of tea", "a cup of teas", False),
        ("a cup", "acup", False),
        ("a, b", "a b", False),
    ],
)
def test_equal_up_to_case_and_space(one: str, other: str, equal: bool) -> None:
    first, second = measure(pa.array([one, other])).hashes
    assert (first == second) is np.bool_(equal)


def add(index: DuplicateIndex, texts: list[str], file: str, line: int) -> None:
    index.add(measure(pa.array(texts, pa.string())).hashes, file, line + np.arange(len(texts)))


@given(st.lists(st.sampled_from("abcdefg"), max_size=20), st.lists(st.sampled_from("efghi"), max_size=9))
def test_repeats_are_those_of_a_slow_search(texts: list[str], others: list[str]) -> None:
    seen, other = DuplicateIndex(), DuplicateIndex()
    for i, text in enumerate(texts):
        add(seen, [text], f"file{i // 5}", i + 1)
    add(other, others, "file", 1)
    again = [i for i, text in enumerate(texts) if text in texts[:i]]
    place = [f"file{i // 5}:{i + 1}" for i in range(len(texts))]
    count, examples = seen.repeats(examples=4)
    assert count == len(again)
    assert examples == [(place[i], place[texts.index(texts[i])]) for i in again[:4]]
    assert other.count_in(seen) == sum(text in texts for text in others)
    assert seen.count_in(other) == sum(text in others for text in texts)


def test_texts_are_not_kept() -> None:
    """Four hundred times as much text, the same memory."""
    peaks = []
    for size in (10, 4000):
        tracemalloc.start()
        seen = DuplicateIndex()
        for i in range(500):
            add(seen, [f"{i} " + "x" * size], "file", i)
        peaks.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1000 < 300_000


def test_repeats_far_from_their_originals_need_little_memory() -> None:
    """Every text comes again, after all others: the places of the others are not kept meanwhile."""
    seen, hashes = DuplicateIndex(), np.random.default_rng(0).integers(0, 2**63, 100_000).astype(np.uint64)
    for number in range(40):
        seen.add(hashes[number % 20 :: 20], f"file{number // 20}", np.arange(5000))
    tracemalloc.start()
    count, places = seen.repeats()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (count, places) == (100_000, [(f"file1:{i}", f"file0:{i}") for i in range(3)])
    assert peak < 5_000_000


def test_of_very_many_texts_a_sample_is_compared() -> None:
    """Each of 4,000 texts stands there three times, and half of them in another set."""
    seen, other = DuplicateIndex(most=1000), DuplicateIndex(most=5000)
    for i in range(3):
        add(seen, [f"text {j}" for j in range(4000)], f"file{i}", 1)
    add(other, [f"text {j}" for j in range(2000, 6000)], "file", 1)
    assert (len(seen), len(other), other.compared) == (12_000, 4000, 4000)
    assert 500 <= seen.compared <= 1000
    count, examples = seen.repeats()
    assert count == pytest.approx(8000, rel=0.2)
    assert all(again.replace("file1", "file0") == first for again, first in examples)
    assert other.count_in(seen) == pytest.approx(2000, rel=0.25)


def shares(one: str, other: str) -> bool:
    """Slowly: some 13 words in a row of one are in a row in the other."""
    a, b = (re.findall(r"\w+", text.casefold()) for text in (one, other))
    stretches = {tuple(b[i : i + NGRAM]) for i in range(len(b) - NGRAM + 1)}
    return any(tuple(a[i : i + NGRAM]) in stretches for i in range(len(a) - NGRAM + 1))


@given(st.integers(0, 10**9), st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 40), max_size=6))
def test_shared_stretches_are_those_of_a_slow_search(seed: int, first: list[int], second: list[int]) -> None:
    """Texts are cut from one long text, so that many overlap, by less than 13 words or by more."""
    draw = random.Random(seed)
    long = [draw.choice("abc") for _ in range(80)]

    def cut(length: int) -> str:
        at = draw.randrange(80)
        return draw.choice([" ", ", ", "\n"]).join(long[at : at + length]).title()

    texts, others = [cut(n) for n in first], [cut(n) for n in second]
    found = NgramIndex(texts[i : i + 2] for i in range(0, len(texts), 2))
    for other in others:
        found.compare([other, ""])
    assert found.sharing() == sum(any(shares(text, other) for other in others) for text in texts)
    assert found.long_enough == sum(len(text.split()) >= NGRAM for text in texts)
    assert found.texts == len(texts)


def test_thirteen_words_are_enough_and_twelve_are_not() -> None:
    words = WORDS[:30]
    for count, shared in ((NGRAM, 1), (NGRAM - 1, 0)):
        found = NgramIndex([[" ".join(words[5 : 5 + count] + ["other"] * 9)]])
        found.compare([" ".join(words)])
        assert found.sharing() == shared
    found = NgramIndex([[" ".join(words[:7]), " ".join(words[7:14])]])  # not across the end of a text
    found.compare([" ".join(words)])
    assert (found.sharing(), found.long_enough) == (0, 0)


def test_the_order_of_words_counts() -> None:
    forward, owner = ngram_hashes([" ".join(WORDS[:NGRAM]), " ".join(reversed(WORDS[:NGRAM]))])
    assert owner.tolist() == [0, 1]
    assert forward[0] != forward[1]


# --- paragraphs and lines -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unit", "parts"),
    [
        ("one\ntwo\n\n\nthree\n", "paragraphs", [("one\ntwo", 1), ("three", 5)]),
        ("\n \none\r\ntwo\r\n \r\nthree", "paragraphs", [("one\ntwo", 3), ("three", 6)]),
        ("one\n" * 99, "lines", [("one", i + 1) for i in range(99)]),
        ("one\n" * 60 + "\n" + "two\n", "lines", [*(("one", i + 1) for i in range(60)), ("two", 62)]),
    ],
)
def test_a_text_is_paragraphs_or_lines(text: str, unit: str, parts: list[tuple[str, int]]) -> None:
    assert split_text(text) == (unit, parts)


# --- the survey ---------------------------------------------------------------------------------


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    """Forty-four rows: four repeat one before, three are bad in ways of their own."""
    rows = [f"{i},{sentence(i, 20)},{'good' if i % 4 else 'bad'},{i / 7 if i % 5 else ''}" for i in range(40)]
    rows += [f"{40 + i},{sentence(i, 20).upper()},good," for i in range(4)]
    rows[9:9] = ["ragged", "9,,good,1", '9,"a"b,bad,']
    return write(tmp_path, "reviews.csv", "id,review,label,score\n" + "\n".join(rows) + "\n")


def test_a_survey_of_a_table(reviews: str) -> None:
    found = survey(reviews)
    assert (found.files, found.formats, found.bytes) == (1, ("csv",), Path(reviews).stat().st_size)
    assert (found.rows, found.unit, found.texts) == (45, "rows", 44)
    assert (found.column, found.sure) == ("review", True)
    facts = {column.name: (column.kind, column.missing, column.labels) for column in found.columns}
    assert facts == {
        "id": ("int", 0, {}),
        "review": ("text", 1, {}),
        "label": ("text", 0, {"good": 35, "bad": 10}),
        "score": ("float", 12, {}),
    }
    assert found.columns[0].example == "0"
    assert found.columns[1].example == one_line(sentence(0, 20))
    words = found.lengths["words"]
    assert (words.total, words.min, words.median, words.max) == (44 * 20, 20, 20, 20)
    assert found.lengths.keys() == {"characters", "bytes", "words"}
    assert (found.duplicates, found.bad) == (4, 3)
    assert found.repeats[0] == (f"{reviews}:45", f"{reviews}:2")
    assert [line.removeprefix(f"{reviews}:") for line in found.bad_lines] == [
        "11: 1 cell where the first line has 4",
        '12: column "review": empty',
        "13: text after a closing quote: inside a quoted cell, write quotes twice",
    ]
    assert found.overlap is None


def test_a_survey_is_json(reviews: str) -> None:
    found = json.loads(json.dumps(survey(reviews, valid=reviews).as_dict(), allow_nan=False))
    assert (found["rows"], found["column"], found["overlap"]["equal"]) == (45, "review", 44)
    assert found["columns"][2]["labels"] == {"good": 35, "bad": 10}


def test_the_column_asked_for(reviews: str, tmp_path: Path) -> None:
    found = survey(reviews, column="label")
    assert (found.column, found.asked, found.sure) == ("label", True, False)
    assert (found.texts, found.duplicates) == (45, 43)
    assert next(line for line in found.lines() if "rows" in line) == "45 rows, 4 columns: the text is label"
    assert found.lengths["characters"].max == 4
    with pytest.raises(DataError, match=r"D004.*'labl'.*did you mean"):
        survey(reviews, column="labl")
    named = survey(write(tmp_path, "x.jsonl", '{"title": "much longer than that", "text": "words"}\n'))
    assert (named.column, named.asked, named.sure) == ("text", False, True)
    assert survey(str(tmp_path / "x.jsonl"), column="text").sure


def test_all_bad_lines_are_counted_and_as_many_kept_as_wanted(tmp_path: Path) -> None:
    spec = write(tmp_path, "x.jsonl", '{"text": "fine"}\n' + "nope\n" * 30)
    found = survey(spec)
    assert (found.bad, len(found.bad_lines), found.texts) == (30, 20, 1)
    assert len(survey(spec, keep=100).bad_lines) == 30


def test_tokens_are_counted_with_a_tokenizer(tmp_path: Path) -> None:
    texts = ["one two three", "one two", "four"]
    train_tokenizer("words", texts).save(tmp_path / "model")
    spec = write(tmp_path, "x.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokens = survey(spec, tokenizer=tmp_path / "model").lengths["tokens"]
    lengths = [len(ids) for ids in load_tokenizer(tmp_path / "model").ids(texts)]
    assert (tokens.total, tokens.min, tokens.max) == (sum(lengths), min(lengths), max(lengths)) == (6, 1, 3)
    with pytest.raises(NotFoundError):
        survey(spec, tokenizer=tmp_path / "absent")


def test_a_survey_of_text_goes_by_paragraphs(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "one two\nthree\n\nfour\n\nOne  two three\n")
    write(tmp_path, "b.txt", "four\n\nfive\n")
    found = survey(str(tmp_path))
    assert (found.files, found.rows, found.texts, found.unit) == (2, 2, 5, "paragraphs")
    assert (found.columns, found.column, found.sure) == ((), "", True)
    assert found.duplicates == 2
    assert found.repeats == (
        (f"{tmp_path}/a.txt:6", f"{tmp_path}/a.txt:1"),
        (f"{tmp_path}/b.txt:1", f"{tmp_path}/a.txt:4"),
    )
    lines = "\n".join(found.lines())
    assert f"{tmp_path}/a.txt:6 repeats line 1\n" in lines
    assert f"{tmp_path}/b.txt:1 repeats {tmp_path}/a.txt:4\n" in lines


def test_overlap_with_a_set_to_evaluate_on(tmp_path: Path) -> None:
    """Of seven rows two are one that is in the training set, one shares 13 words with it, one 12; one is bad."""
    train = write(tmp_path, "train.jsonl", "".join(json.dumps({"text": sentence(i, 40)}) + "\n" for i in range(50)))
    part = sentence(7, 40).split()
    valid = [
        sentence(3, 40).upper(),
        " ".join(part[10 : 10 + NGRAM]) + " and so on",
        " ".join(part[20 : 20 + NGRAM - 1]) + " and so on",
        sentence(1000, 40),
        "short",
        "",
        sentence(3, 40),
    ]
    found = survey(train, valid=write(tmp_path, "valid.jsonl", "".join(json.dumps({"text": v}) + "\n" for v in valid)))
    overlap = found.overlap
    assert overlap is not None
    assert (overlap.texts, overlap.equal, overlap.sharing, overlap.long_enough, overlap.bad) == (6, 2, 3, 5, 1)
    assert overlap.valid == str(tmp_path / "valid.jsonl")
    assert (found.bad, found.texts) == (0, 50)
    lines = "\n".join(found.lines())
    assert f"2 (33.3%) of 6 rows of {tmp_path}/valid.jsonl are in this set; 1 bad lines in there" in lines
    assert "3 (50.0%) of 6 rows share 13 words in a row with it; 1 have fewer words" in lines


def test_overlap_of_texts_goes_by_their_lines(tmp_path: Path) -> None:
    train = write(tmp_path, "train.txt", "".join(sentence(i, 20) + "\n" for i in range(30)))
    valid = write(tmp_path, "valid.txt", "".join(sentence(i, 20) + "\n" for i in range(28, 40)))
    overlap = survey(train, valid=valid).overlap
    assert overlap is not None
    assert (overlap.texts, overlap.equal, overlap.sharing) == (12, 2, 2)


def test_batches_do_not_show(tmp_path: Path) -> None:
    """More rows than are measured together: each counted once, repeats across batches found."""
    rows = 2 * BATCH_TEXTS + 7
    spec = write(tmp_path, "x.jsonl", "".join(f'{{"text": "text {i % (rows - 5)}"}}\n' for i in range(rows)))
    found = survey(spec, valid=spec)
    assert (found.texts, found.duplicates) == (rows, 5)
    assert found.repeats[0] == (f"{spec}:{rows - 4}", f"{spec}:1")
    assert found.lengths["words"].total == 2 * rows
    assert found.overlap is not None
    assert (found.overlap.texts, found.overlap.equal) == (rows, rows)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["a", "b"] * 5, {"a": 5, "b": 5}),
        ([0, 1, 1, 1], {"1": 3, "0": 1}),
        ([True, False, True, False], {"True": 2, "False": 2}),
        (["a", None, "b", "a", "b"], {"a": 2, "b": 2}),
        (["2024-01-01", "2024-01-02"] * 5, {}),
        (["a"] * 9, {}),  # always the same
        (["a", "b", "c"], {}),  # never the same
        ([0.5, 1.5] * 5, {}),
        ([[1], [2]] * 5, {}),
        (["x" * 41, "y"] * 5, {}),
        ([i % 50 for i in range(100)], {str(i): 2 for i in range(50)}),
        ([i % 201 for i in range(804)], {}),
    ],
)
def test_what_looks_like_a_label(tmp_path: Path, values: list[Any], labels: dict[str, int]) -> None:
    rows = [json.dumps({"text": f"text {i}", "y": value}) for i, value in enumerate(values)]
    found = survey(write(tmp_path, "x.jsonl", "\n".join(rows)))
    assert dict(found.columns[1].labels) == labels
    if labels:
        assert list(found.columns[1].labels.values()) == sorted(labels.values(), reverse=True)


def test_a_text_that_is_often_the_same_is_no_label(tmp_path: Path) -> None:
    found = survey(write(tmp_path, "x.jsonl", '{"text": "yes"}\n{"text": "no"}\n' * 9))
    assert (found.column, found.columns[0].labels, found.duplicates) == ("text", {}, 16)


def test_columns_without_number_are_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headway.data.profile.scan, "COLUMNS", 10)
    found = survey(write(tmp_path, "x.jsonl", "".join(f'{{"text": "a", "k{i}": 1}}\n' for i in range(99))))
    assert (len(found.columns), found.rows, found.columns[9].missing) == (10, 99, 98)


# --- lines --------------------------------------------------------------------------------------


def test_the_lines_of_a_survey(reviews: str) -> None:
    lines = [line.replace(reviews, "reviews.csv") for line in survey(reviews).lines()]
    assert re.fullmatch(r"reviews.csv: 1 file, 0\.0\d MB, csv", lines[0])
    assert lines[1] == ("45 rows, 4 columns: the text is review")
    assert lines[3:8] == [
        "column  kind   missing  example",
        "id      int          0  0",
        f"review  text         1  {one_line(sentence(0, 20))}",
        "label   text         0  bad",
        "score   float       12  0.14285714285714285",
    ]
    assert " ".join(lines[9].split()) == "length of rows total min median mean p95 max from min to max"
    assert lines[12].split() == ["words", "880", "20", "20", "20.0", "20", "20", "█"]
    assert {line.rindex("  ") for line in lines[10:13]} == {line.index("from") - 2 for line in lines[9:10]}
    assert lines[14:] == [
        "labels      label: good 77.8%, bad 22.2%",
        "duplicates  4 (9.1%) of 44 rows",
        "            reviews.csv:45 repeats line 2",
        "            reviews.csv:46 repeats line 3",
        "bad lines   3",
        "            reviews.csv:11: 1 cell where the first line has 4",
        '            reviews.csv:12: column "review": empty',
        "            reviews.csv:13: text after a closing quote: inside a quoted cell, write quotes twice",
    ]


def test_a_survey_fits_a_screen(tmp_path: Path) -> None:
    """Everything there is to say at once: many columns, labels, repeats, bad lines, tokens, overlap."""
    rows = [{"text": f"text {i // 2}", **{f"c{j}": i % (j + 2) for j in range(30)}} for i in range(200)]
    spec = write(tmp_path, "x.jsonl", "\n".join([*map(json.dumps, rows), *["nope"] * 40]))
    train_tokenizer("bytes", [""]).save(tmp_path / "model")
    lines = list(survey(spec, valid=spec, tokenizer=tmp_path / "model").lines())
    assert len(lines) == 30
    assert "… and 25 more" in lines
    assert "bad lines   40 (--bad lists them all)" in lines
    assert sum(line.startswith("labels") for line in lines) == 2


def test_a_survey_of_nothing(tmp_path: Path) -> None:
    found = survey(write(tmp_path, "x.csv", ""))
    assert (found.rows, found.texts, found.lengths, found.bad) == (0, 0, {}, 1)
    assert list(found.lines())[-1].endswith("x.csv:1: the file is empty")
    empty = survey(write(tmp_path, "y.csv", "text,n\n"), valid=str(tmp_path / "x.csv"))
    assert (empty.rows, empty.bad) == (0, 0)
    assert "0 (0.0%) of 0 rows" in "\n".join(empty.lines())


def test_a_table_without_text(tmp_path: Path) -> None:
    found = survey(write(tmp_path, "x.csv", "when,n\n2020-01-01,1\n2020-01-02,2\n"))
    assert (found.column, found.texts, found.bad, found.rows) == ("", 0, 0, 2)
    assert "2 rows, 2 columns: no column holds text" in list(found.lines())


def test_a_table_without_names(tmp_path: Path) -> None:
    found = survey(write(tmp_path, "x.tsv", "a cup of tea\t1\na pot of tea\t0\n"))
    assert (found.rows, found.column, found.sure) == (2, "column1", True)
    assert "2 rows, 2 columns: the text is column1; the first line is data, not a header" in list(found.lines())


def test_a_terminal_is_safe_from_the_data(tmp_path: Path) -> None:
    """Names and cells may hold anything; what is printed has no control characters."""
    spec = write(
        tmp_path, "x.jsonl", json.dumps({"text\x1b[2J": "a\x07\x1b]0;b\u202ec", "n\n": 1}) + "\n" + "nope\x1b\n"
    )
    for line in survey(spec).lines():
        assert line.isprintable() or not line, repr(line)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a \n b", "a b"),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 60, "x" * 60),
        (5, "5"),
        ([1, 2], "[1, 2]"),
        (datetime(2020, 1, 2, 3, 4), "2020-01-02 03:04:00"),
        ("a\x1bb", "a�b"),
    ],
)
def test_one_line(value: Any, expected: str) -> None:
    assert one_line(value) == expected


def test_a_word_a_line_is_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(
        "Anna NNP B-PER\nslept VBD O\n\nin IN O\nOslo NNP B-LOC\n\nshe PRP O\nsaw VBD O\nit PRP\n\nso RB O\nit PRP O\n"
    )
    found = survey(str(path))
    assert (found.rows, found.unit, found.texts, found.column, found.bad) == (3, "sentences", 3, "words", 1)
    assert found.columns[1].labels == {"O": 4, "B-PER": 1, "B-LOC": 1} and found.columns[1].missing == 0
    assert next(iter(found.bad_lines)) == f"{path}:9: 2 columns where the first line has 3"
    assert list(found.lines())[1] == "3 sentences, 2 columns: the text is words"


@pytest.mark.parametrize(
    "text",
    [
        "one word\ntwo words\nmore words\nand words\nhas words\nthe words\n",
        "a b\n\nc d\n\ne f\n\ng h\n\ni j\n\nk l\n\n",
        "x O\n\ny O\n",
    ],
)
def test_other_texts_are_not(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert survey(str(tmp_path / "a.txt")).unit != "sentences"


def test_questions_are_the_text_of_a_squad_file(tmp_path: Path) -> None:
    asked = [{"id": f"q{i}", "question": f"Why {i}?", "answers": []} for i in range(3)]
    data = {"version": "2", "data": [{"paragraphs": [{"context": "It rained all day in Oslo.", "qas": asked}]}]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(data, indent=1))
    found = survey(str(path))
    assert (found.rows, found.column, found.duplicates, found.bad) == (3, "question", 0, 0)
