"""Who is in a batch: every sample once an epoch, within the budget of tokens, a pure function of the step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.batching.batch_sampler import FixedBatchSampler, TokenBatchSampler, shard
from headway.data.batching.packing import PaddedRows, padded_width
from headway.data.batching.permutation import Index, epoch_key, permute
from headway.errors import DataError

lengths_of = st.lists(st.integers(0, 60), min_size=1, max_size=120).map(lambda x: np.array(x, dtype=np.int64))
plans = st.tuples(lengths_of, st.integers(1, 300), st.integers(0, 5), st.integers(1, 4))


@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 20))
def test_a_fixed_plan_takes_the_samples_in_turn(size: int, batch: int, step: int) -> None:
    plan = FixedBatchSampler(size, batch)
    assert plan.samples(step).tolist() == list(range(step * batch, step * batch + batch))
    assert plan.steps_per_epoch * batch == pytest.approx(size)


def naive_epoch(lengths: Index, tokens: int, seed: int, pool: int, epoch: int) -> list[list[int]]:
    """The batches of an epoch by their definition, a sample at a time."""
    size, widths = len(lengths), [int(padded_width(length)) for length in lengths]
    key = epoch_key(seed, epoch)
    order = permute(np.arange(size), size, key).tolist()
    pool_size = pool * max(1, int(tokens / np.mean(widths)))
    batches: list[list[int]] = []
    for start in range(0, size, pool_size):
        fresh = True
        for sample in sorted(order[start : start + pool_size], key=lambda sample: -widths[sample]):
            if fresh or (len(batches[-1]) + 1) * widths[batches[-1][0]] > tokens:
                batches.append([])
            batches[-1].append(sample)
            fresh = False
    places = permute(np.arange(len(batches)), len(batches), epoch_key(key, 0))
    return [[epoch * size + sample for sample in batches[place]] for place in places.tolist()]


@given(plans)
def test_a_token_plan_is_what_its_definition_says(arguments: tuple[Index, int, int, int]) -> None:
    plan = TokenBatchSampler(*arguments)
    epochs = [naive_epoch(*arguments, epoch) for epoch in range(2)]
    assert plan.steps_per_epoch == len(epochs[0])
    wanted = [batch for epoch in epochs for batch in epoch]
    assert [plan.samples(step).tolist() for step in range(len(wanted))] == wanted


@given(plans)
def test_every_sample_is_in_one_batch_of_an_epoch_and_fits(arguments: tuple[Index, int, int, int]) -> None:
    lengths, tokens, *_ = arguments
    plan, size = TokenBatchSampler(*arguments), len(lengths)
    rows = PaddedRows(np.zeros(int(lengths.sum()), np.uint16), np.concatenate([[0], np.cumsum(lengths)]), 60, 0, False)
    step = 0
    for epoch in range(2):
        seen: list[int] = []
        while len(seen) < size:
            batch = plan.samples(step)
            inputs, _, segment_ids = rows.read(batch)
            assert inputs.size <= tokens or len(batch) == 1
            assert (segment_ids.sum(1) == lengths[batch % size]).all()  # row i of the source is meant by sample i
            seen += batch.tolist()
            step += 1
        assert sorted(seen) == list(range(epoch * size, (epoch + 1) * size))


@given(plans, st.lists(st.integers(0, 20), min_size=1, max_size=4))
@settings(max_examples=40)
def test_any_step_can_be_asked_first(arguments: tuple[Index, int, int, int], steps: list[int]) -> None:
    in_turn, at_random = TokenBatchSampler(*arguments), TokenBatchSampler(*arguments)
    batches = [in_turn.samples(step) for step in range(21)]
    for step in steps:
        assert (at_random.samples(step) == batches[step]).all()
    assert (TokenBatchSampler(*arguments).samples(steps[0]) == batches[steps[0]]).all()


def test_threads_may_share_a_plan() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 100)
    one, shared = TokenBatchSampler(lengths, 256, 1, 4), TokenBatchSampler(lengths, 256, 1, 4)
    steps = list(range(int(one.steps_per_epoch * 6)))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(shared.samples, reversed(steps)))
    assert all((one.samples(step) == batch).all() for step, batch in zip(reversed(steps), found, strict=True))


def test_few_epochs_are_kept_and_none_is_planned_twice_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    original = TokenBatchSampler._build_epoch
    monkeypatch.setattr(TokenBatchSampler, "_build_epoch", lambda self, key: planned.append(key) or original(self, key))
    plan = TokenBatchSampler(np.random.default_rng(0).integers(1, 60, 100), 256, 1, 4)
    for step in range(int(plan.steps_per_epoch * 5)):
        for ahead in (0, 3, 1, 2):  # as the threads of a loader would
            plan.samples(step + ahead)
    assert 5 <= len(planned) == len(set(planned)) <= 7
    assert len(plan._epochs) == 2


def test_batches_are_alike_in_length_and_in_random_order() -> None:
    lengths = np.random.default_rng(0).integers(1, 513, 5000)
    plan = TokenBatchSampler(lengths, 4096, 0)
    batches = [plan.samples(step) for step in range(int(plan.steps_per_epoch))]
    widest = np.array([padded_width(lengths[batch]).max() for batch in batches])
    area = sum(len(batch) * int(width) for batch, width in zip(batches, widest, strict=True))
    assert lengths.sum() / area > 0.95  # in the order of an epoch it is about a half
    assert abs(np.corrcoef(widest, np.arange(len(widest)))[0, 1]) < 0.15
    assert area / len(batches) > 0.9 * 4096


def test_epochs_and_seeds_differ() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 500)
    plan = TokenBatchSampler(lengths, 256, 0, 4)
    second = plan.samples(int(plan.steps_per_epoch) + 1) % 500
    assert set(plan.samples(1).tolist()) != set(second.tolist())
    assert set(plan.samples(1).tolist()) != set(TokenBatchSampler(lengths, 256, 1, 4).samples(1).tolist())


@pytest.mark.parametrize("seed", [-1, 2**44, 2**64 - 1])
def test_any_seed_will_do(seed: int) -> None:
    plan = TokenBatchSampler(np.arange(1, 50), 64, seed)
    epoch = [plan.samples(step) for step in range(int(plan.steps_per_epoch))]
    assert sorted(np.concatenate(epoch).tolist()) == list(range(49))


def test_no_samples_are_an_error() -> None:
    with pytest.raises(DataError, match="0 samples"):
        TokenBatchSampler(np.zeros(0, dtype=np.int64), 256, 0)


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 12))
def test_parts_are_neighbours_and_as_large_as_each_other(samples: list[int], parts: int) -> None:
    shares = shard(np.array(samples, dtype=np.int64), parts)
    assert len(shares) == parts
    assert np.concatenate(shares).tolist() == samples
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
