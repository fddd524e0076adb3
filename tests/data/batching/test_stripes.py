"""Stripes: rows that go on where they ended, every token in every epoch, and evaluation of each token once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.batching.stripes import Stripes, evaluation_stripes
from headway.errors import DataError

IGNORE = -100


def step_of(stripes: Stripes, step: int) -> tuple[np.ndarray, np.ndarray]:
    inputs, targets, segment_ids = stripes.read(np.arange(step * stripes.rows, (step + 1) * stripes.rows))
    assert segment_ids is None and inputs.dtype == targets.dtype == np.int64
    return inputs, targets


@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 60), st.integers(0, 99))
def test_rows_go_on_where_they_ended(rows: int, length: int, more: int, seed: int) -> None:
    """In every epoch, so across its end too; the text is a ring."""
    size = rows * length + more
    stripes = Stripes(np.arange(size, dtype=np.uint16), length, rows, seed)
    steps = 3 * len(stripes) // rows + 2
    before = None
    for step in range(steps):
        inputs, targets = step_of(stripes, step)
        assert inputs.shape == (rows, length)
        assert ((inputs + 1) % size == targets).all()
        if before is not None:
            assert (inputs[:, 0] == before[:, -1]).all()
        before = targets


def test_an_epoch_reads_each_token_once_at_most() -> None:
    stripes = Stripes(np.arange(103), 5, 4, seed=2)
    assert len(stripes) == 4 * 5
    found = np.concatenate([step_of(stripes, step)[0].ravel() for step in range(5)])
    assert len(np.unique(found)) == len(found) == 100


def test_the_seed_chooses_where_the_ring_begins() -> None:
    text = np.arange(1000)
    firsts = {int(step_of(Stripes(text, 5, 4, seed), 0)[0][0, 0]) for seed in range(8)}
    assert len(firsts) > 5


def test_a_text_that_is_too_short() -> None:
    assert len(Stripes(np.arange(20), 5, 4, 0)) == 4
    with pytest.raises(DataError, match=r"19 tokens are too few: 4 rows \(train.batch\) of 5 tokens .* need 20"):
        Stripes(np.arange(19), 5, 4, 0)


@given(st.integers(2, 700), st.integers(1, 9), st.integers(1, 6))
def test_evaluation_predicts_each_token_once(size: int, length: int, rows: int) -> None:
    """With the token before as its input, after a piece of context in all rows but the first."""
    text = np.arange(size, dtype=np.uint16)
    predicted: list[int] = []
    last: np.ndarray | None = None
    for inputs, targets, mask in evaluation_stripes(text, length, rows, IGNORE):
        counted = targets != IGNORE
        assert (inputs[counted] + 1 == targets[counted]).all()
        predicted += targets[counted].tolist()
        if mask is not None:
            assert last is None and not counted.any() and not mask[0].any() and mask[1:].all()
            last = inputs[:, -1]
            last[0] = -1  # the first row has no context
            continue
        if last is not None:
            real = counted[:, 0]
            assert (inputs[real, 0] == last[real] + 1).all()
        last = inputs[:, -1]
    assert sorted(predicted) == list(range(1, size))


def test_one_token_predicts_none() -> None:
    with pytest.raises(DataError, match="too few to predict any"):
        next(evaluation_stripes(np.arange(1), 4, 2, IGNORE))
