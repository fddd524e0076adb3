"""Statistics of heads, rollout and receptive fields, on maps whose numbers are known."""

from __future__ import annotations

import numpy as np
import pytest

from headway.inspect.heads import Maps, distances, head_stats, receptive_field, rollout
from headway.inspect.reading.base import Grid, Token

SIZE = 6
IDS = [7, 1, 2, 1, 3, 9]
TOKENS = [Token(label=str(i), id=i, special=i in (7, 9)) for i in IDS]


def maps(*heads: np.ndarray) -> Maps:
    return np.stack(heads)[None].astype(np.float32)


PREVIOUS = np.eye(SIZE, k=-1)
PREVIOUS[0, 0] = 1
FIRST = np.zeros((SIZE, SIZE))
FIRST[:, 0] = 1
LAST = FIRST[:, ::-1]
EVEN = np.full((SIZE, SIZE), 1 / SIZE)
SAME = np.eye(SIZE)
SAME[[1, 3]] = SAME[[3, 1]]


@pytest.mark.parametrize(
    ("weights", "name", "share"),
    [
        (PREVIOUS, "the previous token", "previous"),
        (PREVIOUS.T, "the next token", "next"),
        (FIRST, "the first token", "first"),
        (LAST, "separators", "separator"),
        (np.eye(SIZE), "the token itself", "self"),
    ],
)
def test_a_head_is_named_after_what_it_looks_at(weights: np.ndarray, name: str, share: str) -> None:
    (stats,) = head_stats("encoder", maps(weights), TOKENS, TOKENS)
    assert stats.looks_at == name
    assert stats.shares[share] == pytest.approx(1)
    assert stats.entropy == pytest.approx(0, abs=1e-6)


def test_an_even_head_looks_at_everything() -> None:
    (stats,) = head_stats("encoder", maps(EVEN), TOKENS, TOKENS)
    assert stats.looks_at == "everything"
    assert stats.keys == pytest.approx(SIZE)
    assert stats.entropy == pytest.approx(np.log(SIZE))
    assert stats.shares["first"] == pytest.approx(1 / SIZE, abs=1e-5)
    assert stats.shares["separator"] == pytest.approx(1 / SIZE, abs=1e-5)


def test_the_share_of_equal_tokens_is_of_those_that_have_one() -> None:
    (stats,) = head_stats("encoder", maps(SAME), TOKENS, TOKENS)
    assert stats.shares["same"] == pytest.approx(1)


def test_distances_of_positions_and_of_patches() -> None:
    assert distances(3, 3, None)[0].tolist() == [0, 1, 2]
    apart = distances(5, 5, Grid(rows=2, columns=2, leading=1))
    assert apart[1].tolist() == pytest.approx([0, 0, 1, 1, 2**0.5])
    assert apart[0].tolist() == [0] * 5


def test_keys_of_another_stack_have_no_neighbours() -> None:
    (stats,) = head_stats("cross", maps(EVEN[:2]), TOKENS[:2], TOKENS)
    assert stats.distance is None
    assert set(stats.shares) == {"first", "separator"}


def test_rollout_is_the_product_of_layers_with_their_residual_connections() -> None:
    both = np.stack([np.stack([PREVIOUS, EVEN]), np.stack([FIRST, EVEN])]).astype(np.float32)
    own = [(layer.mean(0) + np.eye(SIZE)) / 2 for layer in both]
    found = rollout(both)
    np.testing.assert_allclose(found[0], own[0], atol=1e-6)
    np.testing.assert_allclose(found[1], own[1] @ own[0], atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_a_window_reaches_farther_with_each_layer() -> None:
    layer = (PREVIOUS + np.eye(SIZE)) / 2
    layer[0] = np.eye(SIZE)[0]
    reach, most = receptive_field(np.stack([layer[None]] * 3).astype(np.float32))
    assert reach[:, -1].tolist() == [2, 3, 4]
    assert reach[:, 0].tolist() == [1, 1, 1]
    assert (most <= reach).all() and most[0, -1] == 2
