"""Metrics against cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.tasks.metrics import classification as metrics
from headway.tasks.metrics.classification import (
    calibration,
    confusion,
    hits,
    macro_f1,
    matthews,
    micro_f1,
    pearson,
    ranks,
    spearman,
)

TRUTH = np.array([0, 0, 0, 1, 1, 2])
GUESS = np.array([0, 0, 1, 1, 0, 1])


def test_a_confusion_matrix_has_a_row_for_each_truth() -> None:
    matrix = confusion(TRUTH, GUESS, 4)
    assert matrix.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert hits(matrix).tolist() == [[2, 1, 0, 0], [1, 2, 0, 0], [1, 1, 1, 0]]
    assert metrics.accuracy(matrix) == pytest.approx(3 / 6)


def test_f1_by_hand() -> None:
    found = hits(confusion(TRUTH, GUESS, 4))
    # 2·2/(2·2+1+1) = 2/3; 2·1/(2+2+1) = 2/5; 0; and the last label, never there, has no say
    assert metrics.f1(found)[:3] == pytest.approx([2 / 3, 2 / 5, 0])
    assert np.isnan(metrics.f1(found)[3])
    assert macro_f1(found) == pytest.approx((2 / 3 + 2 / 5) / 3)
    assert micro_f1(found) == pytest.approx(1 / 2)
    assert macro_f1(np.zeros((3, 2), dtype=np.int64)) == micro_f1(np.zeros((3, 2), dtype=np.int64)) == 0


def test_f1_of_sets_by_hand() -> None:
    truth = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    guess = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], dtype=bool)
    found = metrics.set_hits(truth, guess)
    assert found.tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert micro_f1(found) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert macro_f1(found) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_matthews_of_two_labels_is_the_textbook_formula() -> None:
    tp, tn, fp, fn = 6, 3, 1, 2
    matrix = np.array([[tn, fp], [fn, tp]])
    expected = (tp * tn - fp * fn) / ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5
    assert matthews(matrix) == pytest.approx(expected)
    assert matthews(np.diag([3, 4, 5])) == pytest.approx(1)
    assert matthews(np.array([[5, 0], [5, 0]])) == 0  # always the same answer


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
def test_matthews_is_the_correlation_of_indicators(pairs: list[tuple[int, int]]) -> None:
    """Gorodkin's definition: covariances of the one-hot columns, summed."""
    truth, guess = (np.eye(4)[np.array(side)] for side in zip(*pairs, strict=True))
    t, g = truth - truth.mean(0), guess - guess.mean(0)
    spread = np.sqrt((t * t).sum() * (g * g).sum())
    expected = (t * g).sum() / spread if spread > 1e-9 else 0.0
    matrix = confusion(truth.argmax(1), guess.argmax(1), 4)
    assert matthews(matrix) == pytest.approx(expected, abs=1e-9)


def test_correlations() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert pearson(a, 3 * a + 1) == pytest.approx(1)
    assert pearson(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)
    assert spearman(a, np.exp(a)) == pytest.approx(1)
    assert pearson(a, np.exp(a)) < 0.95
    assert pearson(a, np.ones(4)) == 0
    assert ranks(np.array([10.0, 30.0, 10.0, 20.0])).tolist() == [1.5, 4, 1.5, 3]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30))
def test_ranks_are_those_counted_one_by_one(values: list[int]) -> None:
    slow = [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]
    assert ranks(np.array(values, dtype=float)).tolist() == slow


def test_calibration_by_hand() -> None:
    found = calibration(np.array([0.55, 0.65, 0.65, 1.0]), np.array([1.0, 0.0, 1.0, 1.0]))
    assert [(row["low"], row["examples"], row["right"]) for row in found["bins"]] == [
        (0.5, 1, 1.0),
        (0.6, 2, 0.5),
        (0.9, 1, 1.0),
    ]
    assert found["error"] == pytest.approx(0.45 / 4 + 0.15 * 2 / 4)
