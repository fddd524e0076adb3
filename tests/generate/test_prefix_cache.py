"""What was read before is not read again, and nothing changes by it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.errors import DataError
from headway.generate import score as scores
from headway.generate.decode import Sampling, generate
from headway.generate.engine.slot_cache import common_prefix
from headway.generate.prefix_cache import PrefixCache
from headway.generate.score import score
from headway.model.cache import KVCache
from headway.model.model import Transformer
from tests.generate.conftest import Recurrent, tiny_model

KINDS = pytest.mark.parametrize("kind", ["transformer", "recurrent"])


def made(kind: str) -> Any:
    return tiny_model(12, 24, 16, depth=1) if kind == "transformer" else Recurrent(12)


def counted(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (rows, tokens) of every pass from now on."""
    seen: list[tuple[int, int]] = []
    whole = model.extend

    def extend(state: Any, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        seen.append(tuple(ids.shape))
        return whole(state, ids, attention_mask)

    monkeypatch.setattr(model, "extend", extend)
    return seen


@torch.no_grad()
def anew(model: Any, ids: list[int], last: int) -> Tensor:
    return model.extend(model.start(batch=1, capacity=len(ids)), torch.tensor([ids]))[:, -last:]


@KINDS
@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_texts_in_turn_are_as_if_read_anew(kind: str, seed: int) -> None:
    model, draw = made(kind), random.Random(seed)
    prefix, text = PrefixCache(model), list[int]()
    for _ in range(6):
        text = text[: draw.randint(0, len(text))] + [draw.randrange(12) for _ in range(draw.randint(1, 5))]
        text = text[-24:]
        last = draw.randint(1, len(text))
        assert torch.allclose(prefix.prefill(text, last), anew(model, text, last), atol=1e-4)
        assert prefix.ids == text


def test_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("transformer")
    prefix, passes = PrefixCache(model), counted(model, monkeypatch)
    prefix.prefill([1, 2, 3, 4, 5])
    prefix.prefill([1, 2, 3, 9, 9, 9])
    prefix.prefill([1, 2, 3, 9], last=2)
    prefix.prefill([1, 2, 3, 9])
    assert passes == [(1, 5), (1, 3), (1, 2), (1, 1)]
    assert prefix.capacity == 10
    prefix.prefill([1, 2, 3, 9] + [4] * 8)  # more than it has room for
    assert passes[-1] == (1, 8) and prefix.capacity == 24
    assert prefix.fit([1, 2, 5], 3) == 2 and prefix.ids == [1, 2]


def test_a_recurrent_state_goes_on_or_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("recurrent")
    prefix, passes = PrefixCache(model), counted(model, monkeypatch)
    prefix.prefill([1, 2, 3])
    prefix.prefill([1, 2, 3, 4])
    prefix.prefill([1, 2, 5])
    assert passes == [(1, 3), (1, 1), (1, 3)]
    prefix.rows(2)
    prefix.prefill([1, 2, 5, 6])
    assert passes[-1] == (1, 4)  # its state was given away


@KINDS
@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(seed=5, repetition=1.3)])
def test_a_prefix_decodes_what_its_model_does(kind: str, sampling: Sampling) -> None:
    """Past the length of the model too, and with two texts that take turns token by token."""
    model = made(kind)
    prefix = PrefixCache(model)
    prompts = [[1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 5, 6]]
    alone = [list(generate(model, prompt, 40, sampling)) for prompt in prompts]
    assert [list(generate(prefix, prompt, 40, sampling)) for prompt in prompts] == alone
    both = zip(*(generate(prefix, prompt, 40, sampling) for prompt in prompts[:2]), strict=True)
    assert [list(row) for row in zip(*both, strict=True)] == alone[:2]


@KINDS
@settings(max_examples=30)
@given(st.integers(0, 10**6), st.booleans())
def test_what_rows_share_is_read_once(kind: str, seed: int, held: bool) -> None:
    model, draw = made(kind), random.Random(seed)
    prefix = PrefixCache(model) if held else None
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(3):
            start = [draw.randrange(3) for _ in range(draw.randint(1, 15))]
            count = draw.randint(1, 4)
            rows = [start + [draw.randrange(12) for _ in range(draw.randint(0, 6))] for _ in range(count)]
            prompts = [draw.randint(1, len(row)) for row in rows]
            patch.setattr(scores, "SHARED", 100)
            alone = [score(model, [row], [prompt])[0] for row, prompt in zip(rows, prompts, strict=True)]
            patch.setattr(scores, "SHARED", 1)
            found = score(model, rows, prompts, prefix=prefix)
            assert [len(values) for values in found] == [len(values) for values in alone]
            assert torch.allclose(torch.cat(found), torch.cat(alone), atol=1e-4)


def test_sharing_saves_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made("transformer")
    prefix, passes = PrefixCache(model), counted(model, monkeypatch)
    begin = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    score(model, [[*begin, 1, 2], [*begin, 3, 4, 5]], [9, 9])
    assert passes == [(1, 9), (2, 3)]
    score(model, [[*begin, 1, 2], [*begin, 3, 4, 5]], [9, 9], prefix=prefix)
    score(model, [[*begin, 4], [*begin, 7]], [9, 9], prefix=prefix)
    assert passes[2:] == [(1, 9), (2, 3), (1, 1), (2, 1)]
    score(model, [[1, 2, 3, 4], [1, 2, 3, 5]], [1, 1])  # too little in common to be worth a pass
    score(model, [[*begin, 4]], [9])
    assert passes[6:] == [(2, 4), (1, 10)]


def test_a_cache_is_cut() -> None:
    model = made("transformer")
    assert isinstance(model, Transformer)
    with torch.no_grad():
        cache = model.start(batch=2, capacity=8)
        attention_mask = torch.tensor([[False, True, True], [True, True, True]])
        model.step(cache, torch.tensor([[0, 1, 2], [3, 4, 5]]), attention_mask)
        expected = model.step(cache, torch.tensor([[7], [8]]))
        model.step(cache, torch.tensor([[9, 9], [9, 9]]))
        cache.crop(3)
        assert cache.length == cache.span == 3
        assert torch.allclose(model.step(cache, torch.tensor([[7], [8]])), expected, atol=1e-5)
    for wrong in (-1, 5):
        with pytest.raises(DataError, match=f"cannot keep {wrong} of 4"):
            cache.crop(wrong)
    cache.crop(0)
    assert isinstance(cache, KVCache) and cache.length == 0


def test_common() -> None:
    assert [common_prefix(a, b) for a, b in (([], [1]), ([1], [1]), ([1, 2, 3], [1, 2, 4]), ([2], [1, 2]))] == [
        0,
        1,
        2,
        0,
    ]
