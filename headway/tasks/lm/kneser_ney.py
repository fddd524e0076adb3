"""Interpolated modified Kneser–Ney (Chen & Goodman 1998): n-grams of a text, counted and smoothed.

An n-gram is found by its key, (number of the n-gram without its last token) · vocabulary + last token. Keys are sorted,
and n-grams numbered in their order, so that the n-grams that go on from a context are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.batching.permutation import Index
from headway.data.batching.windows import Tokens
from headway.errors import DataError, counted

Floats = NDArray[np.float64]
FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where a text is too small to estimate them."""


@dataclass(frozen=True)
class NGrams:
    """The n-grams of a text with their probabilities."""

    keys: list[Index]
    """Of 2, 3, … n tokens, sorted."""
    log_probs: list[Floats]
    """log p of the last token after the others, of 1, 2, … n tokens; of one token for the whole vocabulary."""
    backoffs: list[Floats]
    """log of the weight of the shorter context, for contexts of 1, 2, … n - 1 tokens; 0 where nothing follows."""


@dataclass(frozen=True)
class _Level:
    """The different n-grams of one length."""

    keys: Index
    suffix: Index
    """Of each the number of the n-gram without its first token."""
    count: Index
    begins: NDArray[np.integer[Any]]
    """The numbers of those that begin a text, perhaps several times."""


def estimate(ids: Tokens, starts: Index, vocab: int, order: int) -> NGrams:
    """The n-grams of texts; text d is ids[starts[d] : starts[d + 1]], and no n-gram reaches into the next.

    The beginning of a text counts as one more token that may come before.
    """
    levels = _levels(ids, starts, vocab, order)
    first = np.arange(vocab)
    unigrams = _Level(first, first, np.bincount(ids, minlength=vocab), ids[starts[:-1][np.diff(starts) > 0]])
    levels.insert(0, unigrams)
    log_probs, backoffs, lower = [], [], np.full(1, 1 / vocab)
    for number, level in enumerate(levels):
        count = level.count if number == order - 1 else _continuations(level, levels[number + 1])
        contexts = len(levels[number - 1].keys) if number else 1
        prefix, suffix = (level.keys // vocab, level.suffix) if number else (np.zeros(vocab, dtype=np.int64),) * 2
        probs, weights = _smoothed(count, prefix, contexts, lower[suffix])
        log_probs.append(np.log(probs))
        if number:
            backoffs.append(np.log(weights))
        lower = probs
    return NGrams([level.keys for level in levels[1:]], log_probs, backoffs)


def _levels(ids: Tokens, starts: Index, vocab: int, order: int) -> list[_Level]:
    """All n-grams of 2 … `order` tokens, by sorting: the number of an n-gram replaces its tokens in the next round."""
    begins = np.zeros(len(ids) + 1, dtype=bool)
    begins[starts] = True
    number: Any = np.int32 if len(ids) < 1 << 31 else np.int64  # half of the memory of a large text
    here, levels = ids.astype(number), []
    for length in range(2, order + 1):
        ends = 1 + np.flatnonzero((here[:-1] >= 0) & ~begins[1 : len(ids)])
        if not len(ends):
            why = f"model.order = {order}, but no text has {counted(length, 'tokens')}"
            raise DataError("D002", why, f"set model.order={length - 1}, or give longer texts")
        keys = here[ends - 1].astype(np.int64) * vocab + ids[ends]
        by_key = np.argsort(keys)
        keys, ends = keys[by_key], ends[by_key]
        new = np.concatenate([[True], keys[1:] != keys[:-1]])
        at = np.flatnonzero(new)
        suffix, count = here[ends[at]], np.diff(at, append=len(keys)).astype(number)
        here = np.full(len(ids), -1, dtype=number)
        here[ends] = np.cumsum(new, dtype=number) - 1
        first = starts[:-1][np.diff(starts) >= length]
        levels.append(_Level(keys[at], suffix, count, here[first + length - 1]))
    return levels


def _continuations(level: _Level, longer: _Level) -> Index:
    """How many different tokens come before each n-gram; the beginning of a text is one of them."""
    found = np.bincount(longer.suffix, minlength=len(level.keys))
    found[np.unique(level.begins)] += 1
    return found


def _smoothed(count: Index, prefix: Index, contexts: int, lower: Floats) -> tuple[Floats, Floats]:
    """Probabilities of the last tokens, and for each context the weight of what the shorter context says (`lower`)."""
    capped = np.minimum(count, 3)
    discount = np.array([0.0, *discounts(np.bincount(count[count <= 4], minlength=5).tolist())])[capped]
    total = np.bincount(prefix, count, minlength=contexts)
    taken = np.bincount(prefix, discount, minlength=contexts)
    known = total > 0
    total = np.where(known, total, 1.0)
    weights = np.where(known, taken / total, 1.0)
    return (count - discount) / total[prefix] + weights[prefix] * lower, weights


def discounts(seen: list[int]) -> tuple[float, float, float]:
    """What is taken from n-grams that were seen once, twice, more often, by how many were seen 0, 1, … 4 times."""
    _, one, two, three, four = seen
    if not (one and two and three and four):
        return FALLBACK
    share = one / (one + 2 * two)
    found = (1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three)
    return found if min(found) > 0 else FALLBACK
