"""Slots: each text is read as if it had a cache of its own, whoever comes, goes, or is computed along with it."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.recipe import ShapeConfig
from headway.config.shape import decoder_config
from headway.errors import DataError
from headway.generate.engine.slot_cache import SlotCache, common_prefix
from headway.model.masks import Layout, self_attention_bias
from headway.model.model import Transformer

VOCAB, CAPACITY = 4, 14

SHAPES: dict[str, dict[str, Any]] = {
    "learned": {},
    "rope, shared heads": {"positions": "rope", "kv_heads": 1},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "window": {"positions": "sinusoidal", "window": 3},
}


def processed(**shape: Any) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(decoder_config(ShapeConfig(depth=2, width=16, heads=2, **shape), VOCAB, CAPACITY)).eval()
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made


MODELS = {name: processed(**shape) for name, shape in SHAPES.items()}


def slots_of(model: Transformer, slots: int = 4, capacity: int = CAPACITY) -> SlotCache:
    return SlotCache(model.start(batch=slots, capacity=capacity + 1))


@torch.no_grad()
def read(model: Transformer, cache: SlotCache, new: dict[int, list[int]], *where: Any) -> dict[int, torch.Tensor]:
    """Hidden states of the new tokens, by slot."""
    step = cache.step(new, *where)
    hidden = model.extend(step, step.ids)
    slots = where[0] if where and where[0] is not None else list(new)
    assert hidden.isfinite().all()  # of padding as well
    return {slot: hidden[list(slots).index(slot), -len(tokens) :] for slot, tokens in new.items()}


@torch.no_grad()
def slowly(model: Transformer, text: list[int], last: int) -> torch.Tensor:
    """The same of the last tokens of a text, in a cache of its own and from its beginning."""
    return model.extend(model.start(batch=1, capacity=len(text)), torch.tensor([text]))[0, -last:]


class Schedule:
    """Texts that come, are read on and go, by one random number after another; and what was read, read again slowly."""

    def __init__(self, model: Transformer, seed: int) -> None:
        self.model, self.random, self.cache = model, random.Random(seed), slots_of(model)
        self.wanted: dict[int, list[int]] = {}
        """The whole text that a taken slot is to hold."""
        self.reused = 0

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(2) for _ in range(count)]  # of two kinds: many texts begin alike

    def come(self) -> None:
        text = self.tokens(self.random.randint(1, CAPACITY))
        best = max(min(common_prefix(held, text), len(text) - 1) for held in self.cache.tokens)
        found = self.cache.take(text)
        if len(self.wanted) == len(self.cache):
            assert found is None
            return
        assert found is not None
        slot, count = found
        assert slot not in self.wanted and count == best and self.cache.tokens[slot] == text[:count]
        self.wanted[slot], self.reused = text, self.reused + count

    def read(self) -> None:
        rest = {slot: text[len(self.cache.tokens[slot]) :] for slot, text in self.wanted.items()}
        some = [slot for slot, tokens in rest.items() if tokens and self.random.random() < 0.7]
        self.random.shuffle(some)
        new = {slot: rest[slot][: self.random.randint(1, 5)] for slot in some}
        if not new:
            return
        others = [slot for slot in range(len(self.cache)) if slot not in new and self.random.random() < 0.5]
        slots = self.random.choice([None, [*some, *others], range(len(self.cache))])
        found = read(self.model, self.cache, new, slots)
        for slot, tokens in new.items():
            text = self.wanted[slot][: len(self.cache.tokens[slot])]
            assert self.cache.tokens[slot] == text and text[-len(tokens) :] == tokens
            torch.testing.assert_close(found[slot], slowly(self.model, text, len(tokens)), rtol=1e-4, atol=1e-5)

    def go(self) -> None:
        if self.wanted:
            slot = self.random.choice(list(self.wanted))
            del self.wanted[slot]
            if self.random.random() < 0.2:
                self.cache.clear(slot)
            self.cache.free(slot)

    def gather(self) -> None:
        size = self.random.randint(max(1, len(self.wanted)), len(self.cache))
        where, moves = self.cache.gather(size)
        self.wanted = {moves.get(slot, slot): text for slot, text in self.wanted.items()}
        assert len(where) == size and {*self.wanted} <= {*where} <= {*range(len(self.cache))}

    def cut(self) -> None:
        if self.wanted:
            slot = self.random.choice(list(self.wanted))
            self.cache.cut(slot, self.random.randint(0, len(self.cache.tokens[slot])))


@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(0, 10**6),
    st.lists(st.sampled_from("cccrrrrrgmmk"), min_size=30, max_size=60),
)
@settings(max_examples=15)
def test_a_slot_equals_a_cache_of_its_own(shape: str, seed: int, schedule: list[str]) -> None:
    there = Schedule(MODELS[shape], seed)
    acts = {"c": there.come, "r": there.read, "g": there.go, "m": there.gather, "k": there.cut}
    memory = [part.data_ptr() for part in (*there.cache.keys, *there.cache.values)]
    for act in schedule:
        acts[act]()
        assert there.cache.taken == {*there.wanted}
    assert memory == [part.data_ptr() for part in (*there.cache.keys, *there.cache.values)]  # allocated once


def test_a_long_schedule_meets_everything() -> None:
    there = Schedule(MODELS["learned"], 5)
    source = random.Random(5)
    for _ in range(200):
        source.choices([there.come, there.read, there.go, there.gather, there.cut], [3, 6, 2, 1, 1])[0]()
    assert there.reused > 30


def test_those_who_do_not_take_part_keep_what_they_have() -> None:
    model, cache = MODELS["learned"], slots_of(MODELS["learned"])
    for text in ([1, 1, 1], [0, 0, 0, 0, 0], [1, 0]):
        found = cache.take([*text, 0])
        assert found is not None
        read(model, cache, {found[0]: text[found[1] :]})
    before = [part.clone() for part in (*cache.keys, *cache.values)]
    read(model, cache, {1: [1, 1]}, range(4))
    for old, new in zip(before, (*cache.keys, *cache.values), strict=True):
        changed = (old != new).any(-1).any(1)[:, :CAPACITY]  # slots, columns
        assert changed.nonzero().tolist() == [[1, 5], [1, 6]]


def test_padding_has_something_to_see() -> None:
    """Kernels differ in what they make of a row that sees nothing, and it may be NaN."""
    model, cache = MODELS["learned"], slots_of(MODELS["learned"])
    for slot, text in enumerate(([1, 1, 1, 1, 1, 1], [0], [], [])):
        if text:
            read(model, cache, {slot: text})
    step = cache.step({1: [1, 1, 1], 2: [1]}, range(4))
    positions, real = step.reserve(3)
    assert real is not None and real.sum(-1).tolist() == [0, 3, 1, 0] and positions.min() >= 0
    queries = Layout(positions, real, step.length)
    keys = Layout(step.positions[:, : step.span], step.attention_mask[:, : step.span])
    assert model.config.decoder is not None
    attention_bias = self_attention_bias(model.config.decoder, None, queries, keys, "fused")
    assert attention_bias.tensor is not None and attention_bias.tensor.dtype == torch.bool
    assert attention_bias.tensor.any(-1).all() and attention_bias.tensor[1, 0].sum(-1).tolist() == [2, 3, 4]


def test_neighbours_are_not_copied() -> None:
    cache = slots_of(MODELS["learned"])
    for slots, shared in (([1, 2], True), (range(4), True), ([2], True), ([2, 1], False), ([0, 2], False)):
        step = cache.step({slots[0]: [1]}, slots)
        keys, values = step.update(0, torch.ones(len(slots), 2, 1, 8), torch.ones(len(slots), 2, 1, 8))
        assert keys.shape == values.shape == (len(slots), 2, 1, 8)
        assert (keys.data_ptr() == cache.keys[0][slots[0]].data_ptr()) == shared


def held(cache: SlotCache, *texts: list[int]) -> None:
    """Slots that have been used for these texts, one after another."""
    for slot, text in enumerate(texts):
        cache.tokens[slot] = list(text)
        cache.taken.add(slot)
        cache.free(slot)


def test_where_a_text_goes() -> None:
    def taken(text: list[int], *texts: list[int], running: tuple[int, ...] = ()) -> tuple[int, int] | None:
        cache = slots_of(MODELS["learned"], slots=3)
        held(cache, *texts)
        cache.taken.update(running)
        before = [list(t) for t in cache.tokens]
        found = cache.take(text)
        if found is not None:
            assert cache.tokens[found[0]] == text[: found[1]]
            assert all(cache.tokens[s] == before[s] for s in range(3) if s != found[0])
        return found

    one, two, three = [0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]
    assert taken([3]) == (0, 0)
    assert taken([1, 1, 1, 0], one, two, three) == (1, 3)  # in place
    assert taken(two, one, two, three) == (1, 3)  # the last token is read again
    assert taken([1, 3], [0, 0, 0], two, three) == (1, 1)  # three are lost either way
    assert taken([1, 3], [0, 0], two, three) == (0, 1)  # copied to the one left longest ago, to lose two and not three
    assert taken([1, 1, 1, 3], one, two) == (2, 3)  # …or to an empty one, to lose none
    assert taken([1, 1, 1, 1, 3], one, two) == (1, 4)  # none are lost
    assert taken([0, 3], one, two, three) == (0, 1)  # the oldest itself
    assert taken([1, 1, 1, 0], one, two, three, running=(1,)) == (0, 3)  # copied from a text in the making
    assert taken([1, 1, 1, 0], one, two, two, running=(1,)) == (2, 3)  # rather used in place
    assert taken([1, 1, 3], one, two, [1, 1]) == (2, 2)  # the one that loses least
    assert taken([3], one, [1, 1], [2]) == (0, 0)  # nothing in common: the oldest goes, not the shortest
    assert taken([3], one, two, three, running=(0,)) == (1, 0)
    assert taken([3], one, two, three, running=(0, 1, 2)) is None


def test_what_was_left_last_is_lost_last() -> None:
    cache = slots_of(MODELS["learned"], slots=3)
    held(cache, [0, 0], [1, 1], [2, 2])
    for text, slot in (([3, 3], 0), ([5, 5], 1)):
        assert cache.take(text) == (slot, 0)
        cache.tokens[slot] = text
    cache.free(1)
    cache.free(0)
    assert [cache.take([4, i]) for i in range(3)] == [(2, 0), (1, 0), (0, 0)]


def test_moving_as_few_as_possible() -> None:
    cache = slots_of(MODELS["learned"], slots=6)
    held(cache, *([i] * 3 for i in range(6)))
    cache.taken = {0, 3, 4}
    assert cache.gather(4) == (range(0, 4), {4: 1})  # to the free one that was left longest ago
    assert cache.taken == {0, 1, 3} and cache.tokens[1] == cache.tokens[4] == [4, 4, 4]
    assert cache.freed[4] == max(cache.freed)
    cache.taken = {5}
    assert cache.gather(1) == (range(5, 6), {})
    cache.taken = {2, 3, 4}
    assert cache.gather(4) == (range(1, 5), {})
    cache.tokens[1] = []
    cache.taken = {0, 5}
    assert cache.gather(3) == (range(0, 3), {5: 1})  # rather to an empty one
    cache.taken, cache.tokens[1], cache.freed[1] = {0, 5}, [7], 100
    assert cache.gather(3) == (range(0, 3), {5: 2})


def test_what_went_wrong_is_wiped() -> None:
    model, cache = MODELS["learned"], slots_of(MODELS["learned"], slots=2)
    assert cache.take([1, 1, 1, 1]) == (0, 0)
    read(model, cache, {0: [1, 1, 1, 1]})
    for part in (*cache.keys, *cache.values):
        part[0] = torch.nan
    cache.clear(0)
    cache.free(0)
    cache.taken = {1}
    assert cache.take([1, 1, 1, 1]) == (0, 0)  # nothing is left to begin from
    both = read(model, cache, {0: [1], 1: [0, 0, 0, 0]})  # a longer text beside it brings all columns into sight
    torch.testing.assert_close(both[0], slowly(model, [1], 1))


def test_a_text_that_is_too_long() -> None:
    model = MODELS["learned"]
    cache = slots_of(model)
    text = [1] * CAPACITY
    assert cache.take(text) == (0, 0)
    torch.testing.assert_close(read(model, cache, {0: text})[0], slowly(model, text, CAPACITY), rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match=f"{CAPACITY + 1} tokens.*{CAPACITY} columns"):
        cache.step({0: [1]})


def test_an_encoder_has_no_place_here() -> None:
    memory = MODELS["learned"].start(batch=1, capacity=3)
    memory.memory = [(torch.ones(1), torch.ones(1))]
    with pytest.raises(DataError, match="encoder"):
        SlotCache(memory)
