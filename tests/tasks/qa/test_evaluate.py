"""Scores of answers as the official scripts have them, and which answer is given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.datasets.squad import Question
from headway.tasks.qa.evaluate import Answer, AnswerResults, Ranked, asking, decide, exact, normalised, rank, token_f1

CONTEXT = "Anna left Rome at seven in the morning."


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Eiffel-Tower, a tower!", "eiffeltower tower"),
        ("An apple a day", "apple day"),
        ("theatre", "theatre"),
        ("a", ""),
        ("U.S.", "us"),
        ("6½ — “x”", "6½ — “x”"),
    ],
)
def test_what_is_compared(text: str, wanted: str) -> None:
    assert normalised(text) == wanted


@pytest.mark.parametrize(
    ("guess", "references", "em", "f1"),
    [
        ("the cat", ["Cat."], 1, 1),
        ("black cat", ["a cat", "the big black cat"], 0, 0.8),
        ("cat cat", ["cat"], 0, 2 / 3),
        ("", [], 1, 1),
        ("cat", [], 0, 0),
        ("", ["cat"], 0, 0),
        ("", ["the"], 1, 1),
        ("dog", ["the", "dog"], 1, 1),
        ("", ["the", "dog"], 0, 0),
    ],
)
def test_scores_by_hand(guess: str, references: list[str], em: float, f1: float) -> None:
    assert exact(guess, references) == em
    assert token_f1(guess, references) == pytest.approx(f1)


WORDS = st.lists(st.sampled_from(["a", "the", "cat", "dog", "sat,", "Sat"]), max_size=5).map(" ".join)


@given(WORDS, st.lists(WORDS, max_size=3))
def test_scores_are_bounded_and_agree(guess: str, references: list[str]) -> None:
    em, f1 = exact(guess, references), token_f1(guess, references)
    assert 0 <= em <= f1 <= 1
    for text in references:
        if normalised(text):
            assert exact(text, references) == 1 == token_f1(text, references)


def test_spans_of_several_windows_are_one_list() -> None:
    ranked = rank([(2.0, 0, 4), (3.0, 10, 14), (1.0, 0, 4), (2.0, 5, 9), (0.0, 0, 9)], -1.0, best=3)
    assert ranked == Ranked([(3.0, 10, 14), (2.0, 0, 4), (2.0, 5, 9)], -1.0)
    assert ranked.margin == -4.0 and rank([], 0.0, 3).margin == math.inf


def test_the_answer_to_give_is_first() -> None:
    ranked = Ranked([(2.0, 0, 4), (1.0, 10, 14)], 1.5)

    def texts(none: bool, threshold: float, null: float = 1.5) -> list[str]:
        return [found.text for found in decide(Ranked(ranked.spans, null), CONTEXT, none, threshold)]

    assert texts(False, 0.0) == texts(False, -9.0) == ["Anna", "Rome"]
    assert texts(True, 0.0) == ["Anna", "", "Rome"]
    assert texts(True, -1.0) == ["", "Anna", "Rome"]
    assert texts(True, 5.0, null=3.0) == ["Anna", "", "Rome"]
    assert texts(True, 0.0, null=2.0) == ["Anna", "", "Rome"]  # more than the threshold, not as much
    assert texts(True, 0.0, null=0.5) == ["Anna", "Rome", ""]
    first, nothing, _ = decide(ranked, CONTEXT, True, 0.0)
    assert first[:3] == ("Anna", 0, 4)
    assert first.score == pytest.approx(math.exp(2) / (math.exp(2) + math.exp(1.5) + math.e))
    assert nothing[:3] == ("", None, None)
    assert decide(Ranked([], 0.0), CONTEXT, False, 0.0) == [Answer("", None, None, 1.0)]


def results(none: bool = True, threshold: float = 0.0) -> AnswerResults:
    asked = [
        Question("a", "Who left?", CONTEXT, (("Anna", 0),)),
        Question("b", "What city?", CONTEXT, (("Rome", 10),)),
        Question("c", "Who came?", CONTEXT, ()),
        Question("d", "Name it", CONTEXT, ()),
    ]
    right, wrong = [(2.0, 0, 4)], [(2.0, 0, 9)]
    ranked = [Ranked(right, -3.0), Ranked([(2.0, 10, 14)], 3.0), Ranked(wrong, 4.0), Ranked(wrong, 1.0)]
    return AnswerResults(asked, ranked, none, threshold)


def test_figures() -> None:
    assert results().metrics() == {"f1": 0.5, "em": 0.5}
    assert results(none=False).metrics() == {"f1": 0.5, "em": 0.5}
    assert results(threshold=1.5).metrics() == {"f1": 0.75, "em": 0.75}


def test_an_evaluation_takes_them_apart() -> None:
    found = results().evaluation({"bad_rows": 2})
    assert found.metrics["f1"][0] == found.metrics["em"][0] == 0.5 and found.examples == 4
    details = found.details
    assert details["bad_rows"] == 2 and next(iter(found.metrics)) == "f1"
    kinds = {row["kind"]: (row["examples"], row["f1"]) for row in details["by_question"]}
    assert kinds == {"who": (2, 1.0), "what": (1, 0.0), "other": (1, 0.0)}
    assert {row["kind"]: row["f1"] for row in details["by_answer"]} == {"answer": 0.5, "no answer": 0.5}
    assert [row["id"] for row in details["worst"]] == ["b", "d"] or [row["id"] for row in details["worst"]] == [
        "d",
        "b",
    ]
    assert "best_threshold" not in results(none=False).evaluation({}).details
    said = sorted((row["text"], row["label"], row["predicted"]) for row in details["worst"])
    assert said == [("Name it", "no answer", "Anna left"), ("What city?", "Rome", "no answer")]
    assert all(row["probability"] == row["score"] for row in details["worst"])
    assert found.primary_metric is not None and found.primary_metric.value == found.metrics["f1"][0]
    assert details["unit"] == "words" and details["slices"] == [
        {"from": 8, "to": 8, "examples": 4, "f1": 0.5, "em": 0.5}
    ]


@given(st.integers(0, 2**32 - 1))
def test_no_threshold_is_better_than_the_best(seed: int) -> None:
    dice = np.random.default_rng(seed)
    asked, ranked = [], []
    for i in range(7):
        right = dice.random() < 0.5
        asked.append(Question(str(i), "?", CONTEXT, (("Anna", 0),) if dice.random() < 0.5 else ()))
        ranked.append(Ranked([(0.0, 0, 4 if right else 9)], float(dice.integers(-3, 4)) + i / 10))
    best = AnswerResults(asked, ranked, True).evaluation({}).details["best_threshold"]
    margins = [r.margin for r in ranked]
    tried = [AnswerResults(asked, ranked, True, t).metrics()["f1"] for t in (min(margins) - 1, *margins)]
    assert best["f1"] == pytest.approx(max(tried))
    assert AnswerResults(asked, ranked, True, best["threshold"]).metrics()["f1"] == pytest.approx(best["f1"])


def test_the_word_that_asks() -> None:
    assert [asking(q) for q in ("In which year?", "WHO's it", "Name it.", "What or who?")] == [
        "which", "who", "other", "what",
    ]  # fmt: skip
