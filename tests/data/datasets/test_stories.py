"""Stories with questions: bAbI's lines and rows, what is wrong with them, and the files of a dataset."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headway.data.datasets.stories import (
    Story,
    is_numbered,
    kind_of,
    read_stories,
    sentences_of,
    stories_of,
    story_files,
    words_of,
)
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.errors import DataError

GOOD = (
    "1 Mary took the milk.\n2 Mary's here.\n3 Where is the milk? \tkitchen\t1 2\n4 Bob ran.\n5 Who ran?\tBob,Mary\t4\n"
)


def found(folder: Path, text: str, name: str = "qa1_facts_train.txt") -> list[Story | Flaw]:
    (folder / name).write_text(text)
    return list(stories_of(folder / name))


def test_questions_know_what_was_told_before_them(tmp_path: Path) -> None:
    first, second = found(tmp_path, GOOD + "1 Ann left.\n2 Who left?\tAnn\n")[:2]
    assert isinstance(first, Story) and isinstance(second, Story)
    assert first.told == ("Mary took the milk.", "Mary's here.") and first.question == "Where is the milk?"
    assert (first.label, first.support, first.kind, first.line) == ("kitchen", (0, 1), "qa1_facts", 3)
    assert second.told == (*first.told, "Bob ran.") and second.label == "Bob,Mary" and second.support == (2,)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("1 A b.\n2 Who?\n", 2, "a question without an answer"),
        ("1 A b.\n2 Who?\t \t1\n", 2, "has no answer"),
        ("1 Who?\tA\t1\n", 1, "comes before any sentence"),
        ("1 A b.\n3 Who?\tA\t1\n", 2, "line 3 of a story after line 1"),
        ("2 A b.\n", 1, "line 2 of a story after line 0"),
        ("1 A b.\n2 Who?\tA\t7\n", 2, "told by line '7'"),
        ("1 A b.\n2 Who?\tA\tx\n", 2, "told by line 'x'"),
        ("1 A b.\nMary left.\n", 2, "expected a number and a sentence"),
        ("1 A b.\n2 ...\n", 2, "no words"),
        ("1 A b.\n2 C d.\n", 1, "a story of 2 sentences without a question"),
        ("\n", 1, "the file is empty"),
    ],
)
def test_a_wrong_story_is_one_flaw_and_the_next_one_is_read(tmp_path: Path, text: str, line: int, reason: str) -> None:
    after = "" if text == "\n" else GOOD
    flaw, *rest = found(tmp_path, text + after)
    assert isinstance(flaw, Flaw) and flaw.line == line and reason in flaw.reason
    assert len(rest) == (2 if after else 0) and all(isinstance(each, Story) for each in rest)


def test_rows_hold_a_text_or_sentences(tmp_path: Path) -> None:
    rows = [
        {"story": "Ann left. Bob ran!", "question": "Who ran?", "answer": "Bob", "kind": "who"},
        {"story": ["Ann left.", "Bob ran."], "question": "How many?", "answer": 2},
        {"story": "Ann left.", "question": "Who?"},
        {"story": 7, "question": "Who?", "answer": "a"},
        {"story": "Ann left.", "answer": "a"},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    first, second, *flaws = found(tmp_path, text, "own.jsonl")
    assert isinstance(first, Story) and first.told == ("Ann left.", "Bob ran!") and first.kind == "who"
    assert isinstance(second, Story) and second.label == "2" and second.kind == "own"
    assert [flaw.column for flaw in flaws if isinstance(flaw, Flaw)] == ["answer", "story", "question"]


def test_files_of_a_folder_are_told_apart_by_their_parts(tmp_path: Path) -> None:
    for name in ("qa1_a_train.txt", "qa1_a_test.txt", "qa2_b_train.txt"):
        (tmp_path / name).write_text(GOOD)
    with gzip.open(tmp_path / "qa3_c_test.txt.gz", "wt") as file:
        file.write(GOOD)
    names = {part: [path.name for path in story_files(str(tmp_path), part)] for part in ("train", "test", "")}
    assert names["train"] == ["qa1_a_train.txt", "qa2_b_train.txt"]
    assert names["test"] == ["qa1_a_test.txt", "qa3_c_test.txt.gz"] and len(names[""]) == 4
    assert [path.name for path in story_files(str(tmp_path / "qa1_a_test.txt"), "train")] == ["qa1_a_test.txt"]
    assert kind_of(tmp_path / "qa3_c_test.txt.gz") == "qa3_c" and is_numbered(tmp_path / "qa3_c_test.txt.gz")
    assert len(read_stories(story_files(str(tmp_path), "test"), str(tmp_path), BadRows())) == 4


def test_files_without_a_question_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 Ann left.\n")
    bad = BadRows("skip")
    with pytest.raises(DataError, match="no questions"):
        read_stories([tmp_path / "a.txt"], "a.txt", bad)
    assert bad.count == 1 and "a story of 1 sentence without a question" in bad.first[0]


def test_sentences_and_words() -> None:
    assert sentences_of("1 Ann left.\n2 Bob ran. Where?\n...") == ("Ann left.", "Bob ran.", "Where?")
    assert words_of("Mary's well-known, Ünal!") == ("mary's", "well-known", "ünal")
