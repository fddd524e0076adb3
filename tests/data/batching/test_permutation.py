"""The order of samples is a permutation, differs by key, and is a pure function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.batching.permutation import permute


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
def test_it_is_a_permutation(size: int, key: int) -> None:
    assert sorted(permute(np.arange(size), size, key).tolist()) == list(range(size))


@given(st.integers(2, 500), st.integers(0, 2**40), st.data())
def test_one_by_one_is_the_same_as_all_at_once(size: int, key: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    assert permute(np.array([index]), size, key)[0] == permute(np.arange(size), size, key)[index]


def test_keys_give_different_orders_that_look_random() -> None:
    orders = np.stack([permute(np.arange(1000), 1000, key) for key in range(200)])
    assert len({row.tobytes() for row in orders}) == 200
    # each place holds each value about equally often, and neighbours are not kept together
    assert abs(orders.mean(0) - 499.5).max() < 110
    assert (abs(np.diff(orders, axis=1)) == 1).mean() < 0.01


def test_an_index_outside_is_an_error() -> None:
    with pytest.raises(IndexError):
        permute(np.array([10]), 10, 0)
