"""Lists of results: dicts, DataFrames, HTML."""

from __future__ import annotations

import sys

import pytest

from headway.api.tables import Results, html_table, one_or_all
from headway.errors import NotFoundError
from headway.tasks.classification.predict import Prediction
from headway.tasks.tagging.predict import Entity

FOUND = [Prediction("good", 0.75, {"good": 0.75, "bad": 0.25}), Prediction("bad", 0.5, {"good": 0.5, "bad": 0.5})]


def test_results_are_a_list_and_a_table() -> None:
    results = Results(FOUND)
    assert results == FOUND and results.to_dicts() == [each.to_dict() for each in FOUND]
    frame = results.to_frame()
    assert list(frame["label"]) == ["good", "bad"] and list(frame["probability"]) == [0.75, 0.5]
    assert results._repr_html_().count("<tr>") == 3


def test_lists_inside_have_the_number_of_their_input() -> None:
    entities = Results([[Entity("Anna", "PER", 0, 4, 0.9)], [], [Entity("Oslo", "LOC", 3, 7, 0.8)] * 2])
    assert [row["input"] for row in entities.to_dicts()] == [0, 2, 2]
    assert list(entities.to_frame()["label"]) == ["PER", "LOC", "LOC"]


def test_one_for_one() -> None:
    assert one_or_all("a", FOUND) == FOUND[0] and isinstance(one_or_all(["a"], FOUND), Results)


def test_without_pandas_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NotFoundError, match=r"F003.*pandas"):
        Results(FOUND).to_frame()


def test_cells_are_escaped_and_cut() -> None:
    found = html_table(["<a>"], [["<script>" + "x" * 500], *([1.0] for _ in range(30))])
    assert "<script>" not in found and "<a>" not in found and len(found) < 2000 and "11 more" in found
