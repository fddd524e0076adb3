"""Texts in windows: no word lost, none labelled twice, and the same windows as others cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.batching.strides import (
    Subwords,
    max_text_tokens,
    sentence_windows,
    special_layout,
    subwords,
    token_windows,
    window_ids,
    word_windows,
)
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError

TEXT = ["the cat sat on the mat , and 12 dogs in Zürich said hello 漢字 to the other cats"]


def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer(kind, TEXT, {"bpe": 300, "wordpiece": 120, "unigram": 300}.get(kind, 0))


KINDS = ("bytes", "chars", "words", "bpe", "wordpiece", "unigram")
TOKENIZERS = {kind: tokenizer(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.sampled_from(TEXT[0].split()), min_size=1, max_size=8))
def test_each_word_has_its_own_pieces(kind: str, words: list[str]) -> None:
    reader = TOKENIZERS[kind]
    (found,) = subwords(reader, [words])
    whole = reader.encode(" ".join(words), special=False)
    assert found.ids == whole.ids and found.word_starts[0] == 0 and found.word_starts[-1] == len(whole.ids)
    at = 0
    for i, word in enumerate(words):
        first, end = whole.offsets[found.word_starts[i]]
        assert at - 1 <= first <= at < end, "the first piece has the first character, and at most the space before it"
        at += len(word) + 1


def test_words_as_the_tokenizer_splits_them_itself() -> None:
    """For WordPiece, words given apart and words joined are the same."""
    words = ["the", "12,5", "dogs-in", "Zürich."]
    theirs = TOKENIZERS["wordpiece"].backend.encode(words, is_pretokenized=True, add_special_tokens=False)
    (found,) = subwords(TOKENIZERS["wordpiece"], [words])
    assert found.ids == theirs.ids
    assert found.word_starts[:-1] == [theirs.word_ids.index(i) for i in range(4)]


def test_a_word_may_have_no_pieces() -> None:
    (found,) = subwords(TOKENIZERS["wordpiece"], [["cat", "\x07", "sat", "\x07"]])
    assert [b - a for a, b in pairwise(found.word_starts)] == [1, 0, 1, 0]
    assert subwords(TOKENIZERS["wordpiece"], [[]]) == [Subwords([], [0])]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 12))
def test_every_word_is_one_windows_own(sizes: list[int], budget: int) -> None:
    windows = word_windows(sizes, budget)
    owned = [word for w in windows for word in range(w.label_begin, w.label_end)]
    assert owned == list(range(len(sizes)))
    for w in windows:
        assert w.begin <= w.label_begin <= w.label_end <= w.end
        assert sum(min(size, budget) for size in sizes[w.begin : w.end]) <= budget
    assert all(left.end < right.end for left, right in pairwise(windows)), "each goes further than the last"
    if sum(sizes) <= budget:
        assert len(windows) == 1


def test_windows_overlap_and_words_take_the_side_with_more_around_them() -> None:
    windows = word_windows([1] * 20, 8)
    assert [(w.begin, w.end, w.label_begin, w.label_end) for w in windows] == [
        (0, 8, 0, 7),
        (6, 14, 7, 13),
        (12, 20, 13, 20),
    ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(3, 9))
def test_windows_of_ids(sizes: list[int], limit: int) -> None:
    around = special_layout(TOKENIZERS["wordpiece"])
    first = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    text, budget = Subwords(list(range(100, 100 + sum(sizes))), first), max_text_tokens(around, limit)
    assert budget == limit - 2
    for window in sentence_windows([text], around, limit):
        ids, places = window_ids(text, window, budget)
        assert len(ids) <= budget
        for word, place in zip(range(window.begin, window.end), places, strict=True):
            assert (place == -1) == (sizes[word] == 0)
            assert place == -1 or ids[place] == 100 + first[word]
    assert [w.end for w in sentence_windows([text], around, None)] == [len(sizes)]


def test_what_is_put_around_texts() -> None:
    reader = TOKENIZERS["wordpiece"]
    single, pair = special_layout(reader), special_layout(reader, pair=True)
    for one, two in (("the cat", "sat on"), ("cat", "the mat , and dogs")):
        a, b = (reader.encode(text, special=False).ids for text in (one, two))
        assert single.wrap(a) == (reader.encode(one).ids, reader.encode(one).token_type_ids)
        assert pair.wrap(a, b) == (reader.encode(one, two).ids, reader.encode(one, two).token_type_ids)
    assert (single.size, pair.size) == (2, 3)
    assert special_layout(TOKENIZERS["bytes"]).size == 0
    with pytest.raises(ConfigError, match="2 tokens"):
        max_text_tokens(single, 2)


@given(st.integers(1, 60), st.integers(2, 20), st.integers(0, 30))
def test_windows_over_tokens_are_those_of_the_tokenizers_library(count: int, budget: int, stride: int) -> None:
    windows = token_windows(count, budget, stride)
    assert windows[0][0] == 0 and windows[-1][1] == count
    assert all(b - a <= budget for a, b in windows)
    assert all(left[1] - right[0] == min(stride, budget // 2) for left, right in pairwise(windows))
    if stride <= budget // 2:
        backend = train_tokenizer("words", ["a"]).backend
        backend.enable_truncation(budget, stride=stride)
        whole = backend.encode(" ".join(["a"] * count))
        theirs = [e.offsets[0][0] // 2 for e in (whole, *whole.overflowing)]
        assert [a for a, _ in windows] == theirs
    assert token_windows(count, None, stride) == [(0, count)]
