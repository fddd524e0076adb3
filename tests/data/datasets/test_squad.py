"""Questions from SQuAD's files and from rows; answers that are not where they should be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.config.recipe import DataConfig
from headway.data.datasets.squad import Question, questions
from headway.data.files.rows import BadRows
from headway.errors import DataError

CONTEXT = "The sun rose at six. Anna left at seven."


def squad(*qas: dict[str, Any]) -> str:
    return json.dumps({"version": "v2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": list(qas)}]}]}, indent=1)


def qa(text: str = "six", start: int = 16, **more: Any) -> dict[str, Any]:
    return {"id": "q1", "question": "When?", "answers": [{"text": text, "answer_start": start}], **more}


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_squad_files(tmp_path: Path) -> None:
    text = squad(qa(), {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True})
    wanted = [Question("q1", "When?", CONTEXT, (("six", 16),)), Question("q2", "Why?", CONTEXT, ())]
    assert list(questions(write(tmp_path / "a.json", text))) == wanted
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text.encode()))
    assert list(questions(str(tmp_path / "a.json.gz"))) == wanted


def test_what_is_impossible_has_no_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", squad(qa(is_impossible=True)))
    assert next(questions(path)).answers == ()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (qa("six", 15), r"the answer 'six' is not at character 15 of the context, where ' si' is"),
        (qa("six", -1), "an answer starts at -1"),
        (qa(" ", 3), "an answer without text"),
        ({"id": "q1", "question": " ", "answers": []}, "no question"),
        ({"id": "q1", "question": "When?", "answers": 3}, "an answer without text: 3"),
    ],
)
def test_misplaced_answers_are_named_by_id_and_line(tmp_path: Path, entry: dict[str, Any], reason: str) -> None:
    path = write(tmp_path / "a.json", squad({**qa(), "id": "q0"}, entry))
    line = next(i for i, text in enumerate(Path(path).read_text().splitlines(), start=1) if '"q1"' in text)
    with pytest.raises(DataError, match=rf"a\.json line {line}: question q1: {reason}"):
        list(questions(path))
    bad = BadRows("skip")
    assert [row.id for row in questions(path, bad=bad)] == ["q0"]
    assert bad.count == 1 and "question q1" in bad.first[0]


def test_what_is_no_squad_file_is_said(tmp_path: Path) -> None:
    for text in ('{"data": 3}', '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', '{"x": '):
        with pytest.raises(DataError):
            list(questions(write(tmp_path / "a.json", text)))


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ({"answers": {"text": ["six", "at six"], "answer_start": [16, 13]}}, (("six", 16), ("at six", 13))),
        ({"answers": [{"text": "six", "answer_start": 16}]}, (("six", 16),)),
        ({"answers": {"text": "six", "answer_start": 16}}, (("six", 16),)),
        ({"answers": ["six"]}, (("six", 16),)),
        ({"answer": "at s"}, (("at s", 13),)),
        ({"answer": ""}, ()),
        ({"answers": {"text": [], "answer_start": []}}, ()),
        ({}, ()),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_rows(tmp_path: Path, answers: dict[str, Any], wanted: Any, as_list: bool) -> None:
    row = {"question": "When?", "context": CONTEXT, **answers}
    path = write(tmp_path / ("a.json" if as_list else "a.jsonl"), json.dumps([row] if as_list else row))
    assert next(questions(path)) == Question("1", "When?", CONTEXT, wanted)


def test_rows_by_other_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps({"q": "When?", "text": CONTEXT, "a": "six"}))
    assert next(questions(path, DataConfig(text="text", pair="q", label="a"))).answers == (("six", 16),)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "?", "context": CONTEXT, "answer": "nine"}, "the answer 'nine' is nowhere in the context"),
        ({"question": 3, "context": CONTEXT}, "the question should be a text, found 3"),
        ({"question": "?", "context": " "}, "no context"),
        (
            {"question": "?", "context": CONTEXT, "answers": {"text": ["six"], "answer_start": []}},
            "answers should have as many",
        ),
        ({"id": "x", "question": "?", "context": CONTEXT, "answer": "nine"}, "question x: the answer"),
    ],
)
def test_flawed_rows_are_named(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    path = write(tmp_path / "a.jsonl", "\n" + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=rf"a\.jsonl line 2: {reason}"):
        list(questions(path))
    with pytest.raises(DataError, match="no questions"):
        list(questions(path, bad=BadRows("skip")))
