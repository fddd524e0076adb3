"""The linear map: with few rows, in its own place, through numpy; the same numbers either way."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.generate.decode import Sampling, generate
from headway.matrices import linear
from headway.matrices.linear import FEW, Linear, few_rows
from tests.generate.conftest import tiny_model


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes that went through numpy."""
    seen: list[tuple[int, ...]] = []
    right = linear.product
    monkeypatch.setattr(linear, "product", lambda x, weight: seen.append(x.shape) or right(x, weight))
    return seen


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own way has been timed, and was slow: nothing is left to the clock."""

    class Slow(dict[tuple[int, ...], float]):
        def __missing__(self, kind: tuple[int, ...]) -> float:
            return 1e9

        def __contains__(self, kind: object) -> bool:
            return True

    monkeypatch.setattr(linear._here, "usual", Slow())
    monkeypatch.setattr(linear._here, "pause", 0)


@given(st.integers(1, FEW), st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 99))
def test_few_rows_give_what_torch_gives(rows: int, width: int, out: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    made, x = Linear(width, out, bias=bias), torch.randn(rows, 1, width)
    with torch.no_grad():
        wanted = made(x)
        with few_rows(rows, made.weight):
            found = made(x)
            odd = made(x.expand(rows, 2, width)[:, 1:])  # not in one piece of memory
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(odd, wanted, rtol=1e-5, atol=1e-5)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype


def test_only_where_it_is_meant(products: list[tuple[int, ...]]) -> None:
    made = Linear(8, 4)
    x, wide, half = torch.randn(2, 8), torch.randn(FEW + 1, 8), torch.randn(2, 8).bfloat16()
    with torch.no_grad():
        made(x)
        with few_rows(2, made.weight):
            made(wide)
            made(x[:0])
            with pytest.raises(RuntimeError, match="dtype"):
                made(half)
        with few_rows(FEW + 1, made.weight):
            made(x)
        with few_rows(2, None):
            made(x)
        with few_rows(2, made.weight.bfloat16()):
            made(x)
    with few_rows(2, made.weight):  # gradients are wanted
        made(x).sum().backward()
    assert made.weight.grad is not None and not products
    with torch.no_grad(), few_rows(2, made.weight):
        made(x)
    assert products == [(2, 8)]


def test_threads_are_given_back_whatever_happens() -> None:
    before = torch.get_num_threads()
    weight, other = torch.randn(2, 2), []
    try:
        torch.set_num_threads(3)
        with pytest.raises(ValueError, match="oops"), torch.no_grad(), few_rows(1, weight):
            assert torch.get_num_threads() == 1
            with few_rows(1, weight):
                pass
            assert torch.get_num_threads() == 1  # who is inside already changes nothing
            thread = threading.Thread(target=lambda: other.append(linear._here.numpy))
            thread.start()
            thread.join()
            raise ValueError("oops")
        assert torch.get_num_threads() == 3 and other == [False]
    finally:
        torch.set_num_threads(before)


def test_decoding_goes_this_way_and_says_the_same(
    products: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(60, 24, 16, depth=2)
    found = list(generate(model, [1, 2, 3], 30, Sampling(seed=1)))
    assert products
    monkeypatch.setattr(linear, "FEW", 0)
    products.clear()
    assert list(generate(model, [1, 2, 3], 30, Sampling(seed=1))) == found and not products


def test_a_way_that_turns_out_slow_is_left(products: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    made, x, now = Linear(8, 4), torch.randn(1, 8), [0.0]
    monkeypatch.setattr(linear, "PAUSE", 3)
    monkeypatch.setattr(linear._here, "usual", {})
    monkeypatch.setattr(linear.time, "perf_counter", lambda: now[0])
    ways = []
    for seconds in (1.0, 1.5, 2.1, 9.0, 0.9, 9.0, 1.0, 1.9, 1.0):
        products.clear()
        with torch.no_grad(), few_rows(1, made.weight):
            made(x)
            now[0] += seconds
        ways.append(bool(products))
    # torch is timed first; 2.1 s are too long beside its 1 s, 1.9 s beside its 0.9 s are as well
    assert ways == [False, True, True, False, False, False, True, True, False]
    with torch.no_grad(), few_rows(2, made.weight):
        made(x)
    assert not products  # another number of rows is another thing to time
