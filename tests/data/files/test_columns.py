"""Columns by their roles: settings win, then usual names, then the only column there is; anything else is an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headway.config.recipe import DataConfig
from headway.data.files import columns as c
from headway.data.files.columns import TOGETHER, Role, column_type, find_columns, named, named_together, value_type
from headway.errors import DataError

LABELED, PAIRS, PARALLEL = (c.TEXT, c.PAIR, c.LABEL), (c.ANCHOR, c.POSITIVE, c.SCORE), (c.SOURCE, c.TARGET)
QA, TAGGED = (c.QUESTION, c.CONTEXT, c.ANSWERS), (c.WORDS, c.TAGS)


def find(roles: tuple[Role, ...], row: str | dict[str, Any], **given: str) -> list[str]:
    """A row is a dict, or a header of a table whose every cell is a text."""
    values = {name: f"text {name}" for name in row.split(",")} if isinstance(row, str) else row
    return find_columns("a.csv", [values], roles, DataConfig(**given))


@pytest.mark.parametrize(
    ("roles", "row", "given", "expected"),
    [
        # documents
        ((c.TEXT,), "body,text", {}, ["text"]),
        ((c.TEXT,), "sentence,content", {}, ["content"]),
        ((c.TEXT,), "title,body,more", {"text": "more"}, ["more"]),
        ((c.TEXT,), {"when": "2016-07-01 00:00:00", "story": "Once", "n": "1"}, {}, ["story"]),
        ((c.TEXT,), {"id": "12", "tags": ["a"], "story": "Once"}, {}, ["story"]),
        ((c.TEXT,), {"text": ["a"], "story": "Once"}, {}, ["story"]),
        ((c.TEXT,), {"text": "5", "story": "Once"}, {}, ["text"]),
        ((c.TEXT,), {"TEXT": "Once", "story": "twice"}, {}, ["TEXT"]),
        # texts and their labels
        (LABELED, "id,sentence,label", {}, ["sentence", "", "label"]),
        (LABELED, "Review,stars,Title2", {}, ["Review", "", "stars"]),
        (LABELED, "premise,hypothesis,gold_label", {}, ["premise", "hypothesis", "gold_label"]),
        (LABELED, "premise,hypothesis,label", {"text": "hypothesis"}, ["hypothesis", "", "label"]),
        (LABELED, "premise,hypothesis,label", {"pair": "hypothesis"}, ["premise", "hypothesis", "label"]),
        (LABELED, "class,words,number", {"text": "words"}, ["words", "", "class"]),
        (LABELED, {"column1": "a fine film", "column2": "1"}, {}, ["column1", "", "column2"]),
        (LABELED, "a,b", {"label": "a"}, ["b", "", "a"]),
        # pairs, with and without a score
        (PAIRS, "left,right", {}, ["left", "right", ""]),
        (PAIRS, "left,right", {"pair": "left"}, ["right", "left", ""]),
        (PAIRS, {"sentence1": "a", "sentence2": "b", "score": "3.5"}, {}, ["sentence1", "sentence2", "score"]),
        (PAIRS, {"text": "a", "pair": "b", "gold": 2}, {}, ["text", "pair", ""]),
        (PAIRS, {"text": "a", "pair": "b", "gold": 2}, {"label": "gold"}, ["text", "pair", "gold"]),
        (PAIRS, {"text": "a", "pair": "b", "score": "high"}, {}, ["text", "pair", ""]),
        # sources and targets
        (PARALLEL, "one,two,three", {"text": "one", "pair": "three"}, ["one", "three"]),
        (PARALLEL, "a,b", {"text": "b"}, ["b", "a"]),
        (PARALLEL, "source,target,other", {"text": "other"}, ["other", "target"]),
        (PARALLEL, {"input": "7", "output": ["seven", "VII"]}, {}, ["input", "output"]),
        # questions, words
        (QA, "id,question,context", {}, ["question", "context", ""]),
        (QA, "q,text,a", {"text": "text", "pair": "q", "label": "a"}, ["q", "text", "a"]),
        (TAGGED, {"text": "a b", "words": ["a", "b"], "ner": ["O", "O"]}, {}, ["words", "ner"]),
    ],
)
def test_columns(roles: tuple[Role, ...], row: Any, given: dict[str, str], expected: list[str]) -> None:
    assert find(roles, row, **given) == expected


@pytest.mark.parametrize(
    ("roles", "row", "given", "words"),
    [
        ((c.TEXT,), "question,answer", {}, ["any of 2", '"question", "answer"', "data.text=NAME"]),
        ((c.TEXT,), {"a": "1", "b": "2016-07-01"}, {}, ['"a", "b"', "data.text=NAME"]),
        ((c.TEXT,), "text,n", {"text": "txt"}, ["'txt'", '"text"?', "data.text", '"text", "n"']),
        (LABELED, "class,words,number", {}, ["any of 2", "data.text=NAME"]),
        (LABELED, "column1,column2,column3", {}, ["any of 3", "data.text=NAME", "column1"]),
        (LABELED, "column1,column2,column3", {"text": "column3"}, ["any of 2", "data.label=NAME", "column1"]),
        (LABELED, "text", {}, ["label", "data.label=NAME"]),
        (LABELED, "text,label", {"pair": "lable"}, ["'lable'", '"label"?', "data.pair"]),
        (PAIRS, "a,b,c", {}, ["any of 3", "data.text=NAME data.pair=NAME"]),
        (PAIRS, "a", {}, ['"a"', "data.text=NAME data.pair=NAME"]),
        (PARALLEL, "one,two,three", {}, ["any of 3", "data.text=NAME data.pair=NAME"]),
        (PARALLEL, "one,two,three", {"text": "one", "pair": "thre"}, ['"three"?', "data.pair"]),
        (QA, "question,answer", {}, ["context", "data.text=NAME"]),
        (TAGGED, {"tokens": ["a"]}, {}, ["list of tags", "data.label=NAME", '"tokens"']),
        (TAGGED, {"text": "a b", "tags": ["O"]}, {}, ["list of words", "data.text=NAME", '"text", "tags"']),
    ],
)
def test_what_cannot_be_told_is_an_error(
    roles: tuple[Role, ...], row: Any, given: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        find(roles, row, **given)
    assert caught.value.code == "D004" and len(caught.value.message) < 300
    said = f"{caught.value.message} {caught.value.hint}"
    assert [word for word in ["a.csv", *words] if word not in said] == []


@pytest.mark.parametrize(
    "role", [c.TEXT, c.LABEL, c.SCORE, c.QUESTION, c.CONTEXT, c.ANSWERS, c.WORDS, c.TAGS, c.MESSAGES]
)
def test_every_usual_name_counts_and_the_likeliest_first(role: Role) -> None:
    value = {"number": 1, "list": ["a"]}.get(role.holds, "a text")
    for i, name in enumerate(role.names):
        assert name == name.lower()
        assert named([{later: value for later in reversed(role.names[i:])}], role) == name
        assert named([{name.upper(): value}], role) == name.upper()
    assert named([{"another": value}], role) == ""


@pytest.mark.parametrize("roles", TOGETHER)
def test_every_two_names_that_go_together(roles: tuple[Role, Role]) -> None:
    for both in TOGETHER[roles]:
        assert named_together([both[1], "more", both[0]], roles) == both
        assert named_together([both[0], "more"], roles) == ()


def test_a_setting_may_be_for_other_files() -> None:
    rows, given = [{"question": "q", "context": "c"}], DataConfig(text="passage", pair="q")
    assert find_columns("a.json", rows, (c.QUESTION, c.CONTEXT), given, strict=False) == ["question", "context"]
    assert find_columns("a.json", [], (c.QUESTION, c.CONTEXT), given) == ["q", "passage"]


def test_a_role_of_a_new_kind_of_data_is_one_line() -> None:
    image = Role("image", "data.image", ("image", "path"), holds="any")
    assert find_columns("a.csv", [{"Path": "cat.png", "label": "cat"}], (image, c.LABEL)) == ["Path", "label"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "missing"), ("", "missing"), ("5", "int"), (" -5 ", "int"), ("9" * 5000, "int"), ("5.", "float"),
        (".5e-3", "float"), ("nan", "float"), ("-inf", "float"), ("1,5", "text"), ("5a", "text"), ("2020-1-2", "date"),
        ("2016-07-01T00:00:00.5+01:00", "date"), ("2016-07-01 x", "text"), (True, "bool"), (5, "int"), (5.0, "float"),
        ([], "list"), ({}, "object"), (b"x", "bytes"), (pa.scalar(0, pa.timestamp("us")).as_py(), "date"),
        (pa.scalar("1.5").cast(pa.decimal128(5, 2)).as_py(), "float"),
    ],
)  # fmt: skip
def test_the_type_of_a_value(value: Any, expected: str) -> None:
    assert value_type(value) == expected


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], "missing"),
        (["missing", "int"], "int"),
        (["int", "float"], "float"),
        (["int", "text"], "text"),
        (["date", "text", "float"], "text"),
        (["text", "list"], "mixed"),
        (["date", "int"], "mixed"),
    ],
)
def test_the_type_of_a_column(types: list[str], expected: str) -> None:
    assert column_type(types) == expected
