"""Sparse patterns against what they say of themselves, block by block and token by token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.config.model import SparseConfig, StackConfig
from headway.kernels.sparse.pattern import in_ranges, key_ranges


def seen_by(causal: bool, length: int, **pattern: object) -> torch.Tensor:
    """(T, T): the pairs of a sequence."""
    config = StackConfig(d_model=4, n_layers=1, n_heads=1, d_ff=4, causal=causal, **pattern)  # type: ignore[arg-type]
    positions = torch.arange(length)[None]
    ranges = key_ranges(config, positions, torch.full((1, length), length))
    return in_ranges(ranges, positions)[0]


BLOCKS, RANDOM, LENGTHS, SEEDS = st.integers(1, 4), st.integers(0, 3), st.integers(1, 60), st.sampled_from([None, 0, 7])


@given(BLOCKS, RANDOM, LENGTHS, SEEDS)
def test_bigbird_sees_global_window_and_random_blocks(block: int, random: int, length: int, seed: int | None) -> None:
    config = SparseConfig(block=block, random=random, seed=seed)
    seen = seen_by(False, length, sparse=config)
    last = (length - 1) // block
    if length <= (5 + 2 * random) * block:
        assert bool(seen.all())
        return
    for q in range(length):
        blocks = {k // block for k in range(length) if seen[q, k]}
        assert all(bool(seen[q, b * block : (b + 1) * block].all()) for b in blocks)
        if q // block in (0, last):
            assert blocks == set(range(last + 1))
            continue
        fixed = {0, last, q // block - 1, q // block, q // block + 1}
        assert fixed <= blocks
        assert len(blocks - fixed) == (0 if seed is None else min(random, last + 1 - len(fixed)))


@given(BLOCKS, RANDOM, LENGTHS, SEEDS)
def test_a_causal_pattern_sees_only_the_past(block: int, random: int, length: int, seed: int | None) -> None:
    config = SparseConfig(block=block, random=random, seed=seed)
    seen = seen_by(True, length, sparse=config)
    for q in range(length):
        blocks = {k // block for k in range(length) if seen[q, k]}
        own = q // block
        assert seen[q].nonzero().flatten().tolist() == [k for k in range(q + 1) if k // block in blocks]
        fixed = {b for b in (0, own - 2, own - 1, own) if b >= 0}
        assert fixed <= blocks
        assert len(blocks - fixed) == (0 if seed is None else min(random, own + 1 - len(fixed)))
    if seed is not None:
        assert (length <= config.whole(causal=True)) == bool((seen == torch.ones_like(seen).tril()).all())


@given(BLOCKS, RANDOM, LENGTHS)
def test_what_follows_a_token_never_changes_what_it_sees(block: int, random: int, length: int) -> None:
    config = SparseConfig(block=block, random=random, seed=1)
    assert torch.equal(seen_by(True, 70, sparse=config)[:length, :length], seen_by(True, length, sparse=config))


def test_random_blocks_differ_by_seed_and_query() -> None:
    a, b = (seen_by(False, 64, sparse=SparseConfig(block=1, random=2, seed=s)) for s in (1, 2))
    assert not torch.equal(a, b)
    assert len({tuple(row.tolist()) for row in a}) > 30


def test_random_blocks_lie_everywhere() -> None:
    """About as many queries see each key; few keys would be a second kind of global block."""
    seen = seen_by(True, 400, sparse=SparseConfig(block=1, random=3, seed=0))
    distant = seen[200:, 1:190].sum(0)
    assert int(distant.max()) <= 14
    assert float(distant.float().mean()) == pytest.approx(200 * 3 * 189 / 297 / 189, rel=0.2)


@pytest.mark.parametrize("causal", [False, True])
def test_ranges_never_overlap(causal: bool) -> None:
    positions = torch.arange(200)[None]
    for pattern in (dict(window=7), dict(sparse=SparseConfig(block=3, random=3, seed=5))):
        config = StackConfig(d_model=4, n_layers=1, n_heads=1, d_ff=4, causal=causal, **pattern)  # type: ignore[arg-type]
        ranges = key_ranges(config, positions, torch.full((1, 200), 200))
        counted = (ranges[..., 1] - ranges[..., 0]).clamp(min=0).sum(-1)
        assert torch.equal(counted, in_ranges(ranges, positions).sum(-1))
