"""Modified Kneser–Ney against a plain implementation with dictionaries, and against numbers worked out by hand."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.tasks.lm.kneser_ney import FALLBACK, NGrams, discounts, estimate

Gram = tuple[int, ...]
BEGIN = -1


class Plain:
    """The formulas of Chen & Goodman (1998), one n-gram at a time."""

    def __init__(self, texts: Sequence[Sequence[int]], vocab: int, order: int) -> None:
        self.vocab, self.order = vocab, order
        seen: Counter[Gram] = Counter()
        before: defaultdict[Gram, set[int]] = defaultdict(set)
        for text in texts:
            for length in range(1, order + 1):
                for at in range(len(text) - length + 1):
                    gram = tuple(text[at : at + length])
                    seen[gram] += 1
                    before[gram].add(text[at - 1] if at else BEGIN)
        self.count = {gram: seen[gram] if len(gram) == order else len(before[gram]) for gram in seen}
        self.discounts = {}
        for length in range(1, order + 1):
            counts = Counter(c for gram, c in self.count.items() if len(gram) == length)
            one, two, three, four = (counts[n] for n in (1, 2, 3, 4))
            found = FALLBACK
            if one and two and three and four:
                y = one / (one + 2 * two)
                worked = (1 - 2 * y * two / one, 2 - 3 * y * three / two, 3 - 4 * y * four / three)
                found = worked if min(worked) > 0 else FALLBACK
            self.discounts[length] = found

    def discount(self, gram: Gram) -> float:
        return self.discounts[len(gram)][min(self.count[gram], 3) - 1]

    def after(self, context: Gram) -> list[Gram]:
        return [g for w in range(self.vocab) if (g := (*context, w)) in self.count]

    def weight(self, context: Gram) -> float:
        """What is left for shorter contexts."""
        known = self.after(context)
        return sum(map(self.discount, known)) / sum(self.count[g] for g in known) if known else 1.0

    def prob(self, word: int, context: Gram) -> float:
        shorter = self.prob(word, context[1:]) if context else 1 / self.vocab
        known, gram = self.after(context), (*context, word)
        own = self.count[gram] - self.discount(gram) if gram in self.count else 0.0
        return own / sum(self.count[g] for g in known) + self.weight(context) * shorter if known else shorter


def grams(found: NGrams, vocab: int) -> list[list[Gram]]:
    """The tokens of all n-grams, by length."""
    levels: list[list[Gram]] = [[(w,) for w in range(vocab)]]
    for keys in found.keys:
        levels.append([(*levels[-1][key // vocab], key % vocab) for key in keys.tolist()])
    return levels


def estimated(texts: Sequence[Sequence[int]], vocab: int, order: int) -> NGrams:
    ids = np.array([w for text in texts for w in text], dtype=np.uint16)
    return estimate(ids, np.cumsum([0, *map(len, texts)]), vocab, order)


def assert_equal(texts: Sequence[Sequence[int]], vocab: int, order: int) -> None:
    found, plain = estimated(texts, vocab, order), Plain(texts, vocab, order)
    levels = grams(found, vocab)
    for length, level in enumerate(levels, 1):
        if length > 1:
            assert level == sorted(gram for gram in plain.count if len(gram) == length)
        probs = [plain.prob(gram[-1], gram[:-1]) for gram in level]
        np.testing.assert_allclose(np.exp(found.log_probs[length - 1]), probs, atol=1e-12, rtol=1e-9)
        if length < order:
            weights = [plain.weight(gram) for gram in level]
            np.testing.assert_allclose(np.exp(found.backoffs[length - 1]), weights, atol=1e-12, rtol=1e-9)
    assert all(np.isfinite(table).all() for table in (*found.log_probs, *found.backoffs))


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=5), st.integers(1, 4))
def test_small_texts(texts: list[list[int]], order: int) -> None:
    """Too small for discounts of their own, with documents shorter than the order and a token that never comes."""
    if max(map(len, texts)) < order:
        with pytest.raises(DataError, match=f"order = {order}"):
            estimated(texts, 6, order)
    else:
        assert_equal(texts, 6, order)


@pytest.mark.parametrize("documents", [1, 40])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_texts_with_discounts_of_their_own(order: int, documents: int) -> None:
    rng = np.random.default_rng(order)
    text = np.minimum(rng.zipf(1.5, 3000), 40) - 1
    texts = [part.tolist() for part in np.array_split(text, documents)]
    if order > 1:
        assert Plain(texts, 50, order).discounts[order] != FALLBACK
    assert_equal(texts, 50, order)


def test_by_hand() -> None:
    """a b a c: the order is 2, so b and c have one token before them, and a has b and the beginning."""
    found = estimated([[0, 1, 0, 2]], 4, 2)
    one, two, _ = FALLBACK
    left = (two + one + one) / 4  # of the counts 2, 1, 1
    unigrams = [(2 - two) / 4 + left / 4, (1 - one) / 4 + left / 4, (1 - one) / 4 + left / 4, left / 4]
    np.testing.assert_allclose(np.exp(found.log_probs[0]), unigrams, rtol=1e-12)
    assert math.fsum(unigrams) == pytest.approx(1)
    assert grams(found, 4)[1] == [(0, 1), (0, 2), (1, 0)]
    after_a, after_b = one, one  # half of two n-grams of a, half of the one of b
    bigrams = [0.5 / 2 + after_a * unigrams[1], 0.5 / 2 + after_a * unigrams[2], 0.5 + after_b * unigrams[0]]
    np.testing.assert_allclose(np.exp(found.log_probs[1]), bigrams, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.backoffs[0]), [after_a, after_b, 1, 1], rtol=1e-12)


def test_discounts_of_chen_and_goodman() -> None:
    share = 100 / (100 + 2 * 40)
    wanted = (1 - 2 * share * 40 / 100, 2 - 3 * share * 20 / 40, 3 - 4 * share * 12 / 20)
    assert discounts([7, 100, 40, 20, 12]) == pytest.approx(wanted)
    for place in range(1, 5):
        assert discounts([0 if i == place else 10 for i in range(5)]) == FALLBACK
    assert discounts([0, 10, 1, 50, 1]) == FALLBACK  # the formula would give more than it takes


def test_no_n_gram_reaches_into_the_next_document() -> None:
    apart, joined = estimated([[0, 1], [2, 3]], 4, 2), estimated([[0, 1, 2, 3]], 4, 2)
    assert grams(apart, 4)[1] == [(0, 1), (2, 3)]
    assert grams(joined, 4)[1] == [(0, 1), (1, 2), (2, 3)]


def test_a_text_that_is_too_short_says_what_fits() -> None:
    with pytest.raises(DataError, match="no text has 3 tokens") as error:
        estimated([[0, 1], [1]], 2, 4)
    assert "model.order=2" in str(error.value.hint)
