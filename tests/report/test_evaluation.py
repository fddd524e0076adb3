"""The report's section on a run's evaluation: all of it is there, and nothing in the file can harm the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.report.page import render_macro
from headway.report.sections import details
from headway.runs.history import read_evaluation

FOUND: dict[str, Any] = {
    "data": "test",
    "examples": 1234,
    "figures": {"accuracy": [0.9, 0.85, 0.95], "macro_f1": [0.8, 0.7, 0.9]},
    "details": {
        "confusion": {"labels": ["no", "<b>yes"], "counts": [[10, 2], [3, 15]]},
        "labels": [{"label": "no", "examples": 12, "precision": 0.77, "recall": 0.83, "f1": 0.8}],
        "calibration": {
            "error": 0.05,
            "bins": [
                {"confidence": 0.6, "right": 0.5, "examples": 4},
                {"confidence": 0.9, "right": 0.95, "examples": 9},
            ],
        },
        "slices": [{"from": 3, "to": 9, "examples": 600, "accuracy": 0.91}],
        "worst": [{"line": 17, "text": "<script>x", "label": "no", "predicted": "yes", "probability": 0.99}],
    },
}


def section(found: Any) -> str:
    values = details(found)
    return "" if values is None else render_macro("evaluation.html", "evaluation", values)


def test_everything_is_shown() -> None:
    html = section(FOUND)
    for part in (
        "On the test data: 1,234 examples",
        "accuracy</th><td>0.900</td><td>0.850 … 0.950",
        "macro f1",
        ">15</td>",
        "0.770",
        "Accuracy by confidence",
        "0.050",
        "3 … 9",
        "line 17: predicted yes (0.990), labelled no",
    ):
        assert part in html, part


def test_questions_and_words_have_sections_of_their_own() -> None:
    parts = {
        "by_answer": [{"kind": "no <b>answer", "examples": 7, "f1": 0.25, "em": 0.125}],
        "by_question": [{"kind": "who", "examples": 3, "f1": 0.5, "em": 0.375}],
        "unit": "<i>words",
        "slices": [{"from": 3, "to": 9, "examples": 6, "f1": 0.75}],
        "worst": [{"text": "Who?", "label": ["Bra = PER"], "predicted": [], "probability": None}],
    }
    html = section({"data": "valid", "details": parts})
    for part in (
        "<h3>With an answer and without</h3>",
        "no &lt;b&gt;answer</th><td>7</td><td>0.250</td><td>0.125",
        "<h3>By question word</h3>",
        "who</th><td>3</td><td>0.500</td><td>0.375",
        ">&lt;i&gt;words</th>",
        "<li>Who?<p>predicted none, labelled Bra = PER</p></li>",
    ):
        assert part in html, part
    assert ">tokens</th>" in section(FOUND)


def test_a_file_that_is_an_example_of_its_own_has_no_line() -> None:
    rows = [{"file": "a.jpg", "line": 0, "text": "a.jpg", "label": "cat", "predicted": "dog", "probability": 0.9}]
    assert "<p>predicted dog (0.900), labelled cat</p>" in section({"data": "valid", "details": {"worst": rows}})


def test_nothing_in_the_file_is_html() -> None:
    html = section(FOUND)
    assert "<script>" not in html and "<b>yes" not in html
    assert "&lt;script&gt;x" in html and "&lt;b&gt;yes" in html


@pytest.mark.parametrize(
    "found",
    [None, {}, [], {"details": 3}, {"figures": {"a": 1}, "details": {"confusion": [], "worst": {}, "labels": [3]}},
     {"details": {"confusion": {"labels": ["a"], "counts": 3}, "calibration": {"bins": [{"confidence": "x"}]}}}],
)  # fmt: skip
def test_what_is_not_of_the_kind_expected_is_left_out(found: Any) -> None:
    assert section(found) == ""


def test_the_file_of_a_run(tmp_path: Path) -> None:
    assert read_evaluation(tmp_path) is None
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "evaluation.json").write_text("{", encoding="utf-8")
    assert read_evaluation(tmp_path) is None
    (tmp_path / "run" / "evaluation.json").write_text(json.dumps(FOUND), encoding="utf-8")
    assert read_evaluation(tmp_path) == FOUND
