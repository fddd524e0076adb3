"""Words in changing pieces: none left out is plain BPE, and the same sample is always the same."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.synthetic.texts.translation import make_translations
from headway.data.tokenizers.bpe_dropout import VARIANTS, BpeDropout, segment
from headway.data.tokenizers.train import train_tokenizer
from headway.errors import ConfigError

TEXTS = [text for pair in make_translations(300) for text in pair]
TOKENIZER = train_tokenizer("bpe", TEXTS, 500)


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)))
def test_nothing_left_out_is_the_tokenizer(text: str) -> None:
    made = BpeDropout(TOKENIZER, 0.0, 1)
    assert made.ids(made.words(text), 5) == TOKENIZER.encode(text, special=False).ids


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TEXTS), st.integers(0, 10**7), st.floats(0.0, 0.99))
def test_pieces_are_always_those_of_the_text(text: str, sample: int, share: float) -> None:
    made = BpeDropout(TOKENIZER, share, 7)
    ids = made.ids(made.words(text), sample)
    assert TOKENIZER.decode(ids) == text
    assert BpeDropout(TOKENIZER, share, 7).ids(made.words(text), sample) == ids


def test_samples_sides_and_seeds_differ() -> None:
    made, other = BpeDropout(TOKENIZER, 0.3, 7), BpeDropout(TOKENIZER, 0.3, 8)
    words = made.words(TEXTS[0])
    found = [made.ids(words, sample) for sample in range(40)]
    assert len({tuple(ids) for ids in found}) > 20
    assert made.ids(words, 3, side=1) != made.ids(words, 3) != other.ids(words, 3)
    longer = np.mean([len(ids) for ids in found]) / len(TOKENIZER.encode(TEXTS[0], special=False).ids)
    assert 1.2 < longer < 3
    assert len({made.variant(words[1], n) for n in range(VARIANTS)}) > 1


def test_every_merge_is_left_out_as_often_as_asked() -> None:
    ranks = {("a", "b"): 0}
    whole = sum(segment("ab", ranks, 0.25, random.Random(i)) == ["ab"] for i in range(4000))
    assert 0.72 < whole / 4000 < 0.78


def test_only_merges_can_be_left_out() -> None:
    with pytest.raises(ConfigError, match="bpe_dropout"):
        BpeDropout(train_tokenizer("words", ["a b"]), 0.1, 0)


def test_a_long_word_is_merged_in_parts() -> None:
    """Merging takes the square of a word's length: a string of 50,000 letters would take hours."""
    made = BpeDropout(TOKENIZER, 0.1, 7)
    text = "".join(random.Random(0).choices("abcdefgh", k=50_000))
    start = time.process_time()
    ids = made.ids(made.words(text), 3)
    assert TOKENIZER.decode(ids) == text and time.process_time() - start < 20
