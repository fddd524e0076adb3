"""Merges over a text: they end where the tokenizer ends, and each count is how often the pair stood in the text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.checks.merges import LONGEST, merge_history
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError, DataError

TEXT = "low lower lowest newer newest wider, the widest river; café 東京 lower lower"
BPE = train_tokenizer("bpe", [TEXT * 3], 330)


def plainly(text: str) -> tuple[list[tuple[str, str, int, int]], list[str]]:
    """The same by looking at every pair of every word for each merge, and the tokens at the end."""
    history = merge_history(BPE, text)
    words, found = [(list(word), count) for word, count in history.words], []
    for merge in history.merges:
        left, right = merge.pair
        times = 0
        for word, count in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == merge.pair:
                    word[at : at + 2] = [left + right]
                    times += count
                at += 1
        found.append((left, right, times, sum(len(word) * count for word, count in words)))
    known = {tuple(merge.pair) for merge in history.merges}
    assert not any(pair in known for word, _ in words for pair in pairwise(word))
    return found, sorted(piece for word, count in words for piece in word * count)


@example("lower lower, lower")
@given(st.text("lowernstid é東,", max_size=60))
def test_every_merge_and_the_tokens_at_the_end(text: str) -> None:
    history = merge_history(BPE, text)
    found, pieces = plainly(text)
    assert found == [(*merge.pair, merge.count, merge.tokens) for merge in history.merges]
    assert pieces == sorted(BPE.pieces(BPE.encode(text).ids))
    assert all(merge.count > 0 for merge in history.merges)


def test_the_merges_of_the_training_text_are_those_of_the_vocabulary_in_its_order() -> None:
    history = merge_history(BPE, TEXT * 3)
    made = ["".join(merge.pair) for merge in history.merges]
    ids = [BPE.backend.token_to_id(piece) for piece in made]
    assert ids == list(range(256, BPE.vocab_size)) and history.merges[0].count >= history.merges[-1].count
    assert history.tokens == len((TEXT * 3).encode())
    assert history.merges[-1].tokens == len(BPE.encode(TEXT * 3).ids)


def test_tokenizers_without_merges_and_long_texts_are_refused() -> None:
    for kind, why in (("chars", "single characters"), ("unigram", "Unigram")):
        with pytest.raises(ConfigError, match=rf"C003.*{why}"):
            merge_history(train_tokenizer(kind, [TEXT], 0 if kind == "chars" else 300), "low")
    with pytest.raises(DataError, match="D001"):
        merge_history(BPE, "a" * (LONGEST + 1))
