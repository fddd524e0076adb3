"""Caches whose rows move: what is copied of them, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.config.presets import transformer
from headway.model.cache import GROWTH, KVCache
from headway.model.model import Transformer


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    base = transformer(2, 16, 2, 32, dropout=0.0)
    assert base.target is not None
    front = replace(base.target, vocab=40)
    return Transformer(replace(base, source=front, target=front)).eval()


@torch.no_grad()
def test_rows_that_move_go_on_as_if_they_had_been_there(model: Transformer) -> None:
    """Past the slots that are stored at first, moving at every step, with sources of unequal length."""
    source, attention_mask = torch.randint(3, 40, (3, 6)), torch.ones(3, 6, dtype=torch.bool)
    attention_mask[1, 4:] = False
    cache = model.start(source, attention_mask=attention_mask, capacity=2 * GROWTH + 9)
    texts, origin = [[1] for _ in range(3)], [0, 1, 2]
    scores = model.step(cache, torch.tensor(texts))
    for step in range(2 * GROWTH + 8):
        rows = torch.randint(0, len(texts), (3 + step % 2,))
        cache = model.reorder(cache, rows)
        token = torch.randint(3, 40, (len(rows), 1))
        scores = model.step(cache, token)
        texts = [[*texts[row], int(token[i])] for i, row in enumerate(rows.tolist())]
        origin = [origin[row] for row in rows.tolist()]
    assert cache.length == cache.capacity
    whole = model(source[origin], torch.tensor(texts), attention_mask=attention_mask[origin]).hidden
    assert torch.allclose(scores, model.lm(whole[:, -1]), atol=1e-5)


@torch.no_grad()
def test_no_more_is_copied_than_was_used(model: Transformer) -> None:
    source = torch.randint(3, 40, (2, 5))
    cache = model.start(source, attention_mask=torch.ones(2, 5, dtype=torch.bool), capacity=500)
    model.step(cache, torch.ones(2, 1, dtype=torch.long))
    wide = cache.reorder(torch.tensor([0, 0, 1, 1]))
    assert wide.keys[0].shape[2] == wide.values[1].shape[2] == GROWTH and wide.capacity == 500


@torch.no_grad()
def test_rows_of_one_source_share_what_was_read_of_it(model: Transformer) -> None:
    source = torch.randint(3, 40, (3, 5))
    cache = model.start(source, attention_mask=torch.ones(3, 5, dtype=torch.bool), capacity=50)
    model.step(cache, torch.ones(3, 1, dtype=torch.long))
    wide = cache.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))
    beams = wide.reorder(torch.tensor([1, 0, 3, 3, 4, 5]))  # every row keeps its source
    assert cache.memory is wide.memory is beams.memory and beams.memory_attention_mask is cache.memory_attention_mask
    fewer = beams.reorder(torch.tensor([0, 1, 4, 4]))
    assert torch.equal(fewer.memory[1][1], wide.memory[1][1][[0, 2]]) and len(fewer.memory_attention_mask) == 2  # type: ignore[arg-type]
    assert fewer.reorder(torch.tensor([1, 0, 3, 2])).memory is fewer.memory
    uneven = fewer.reorder(torch.tensor([0, 2, 3]))
    assert torch.equal(uneven.memory[0][0], cache.memory[0][0][[0, 2, 2]])
    assert len(fewer.reorder(torch.tensor([0, 3])).memory[0][0]) == 2


def test_an_empty_stack_has_nothing_to_move() -> None:
    cache = KVCache.empty(0, 2, 1, 4, 8, torch.empty(0))
    cache.reserve(1)
    cache.advance()
    assert cache.reorder(torch.tensor([1])).length == 1
