"""N-grams of the letters of words, and the rows that their hashes choose (Bojanowski et al. 2017).

Letters: V words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headway.config.networks.words import WordVectorsConfig
from headway.data.batching.permutation import Index

OFFSET, PRIME, MASK = 2166136261, 16777619, (1 << 32) - 1
"""Of the hash FNV-1a."""
Rows = tuple[Index, NDArray[np.int32]]
"""Where the rows of each word begin, (V + 1,) and empty without n-grams; and all their rows."""


def ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a word between < and >; a mark alone is none."""
    marked = f"<{word}>"
    return [
        marked[begin : begin + size]
        for begin in range(len(marked))
        for size in range(shortest, min(longest, len(marked) - begin) + 1)
        if size > 1 or 0 < begin < len(marked) - 1
    ]


def hashed(ngram: str) -> int:
    """FNV-1a over the bytes, each with its sign, as fastText has it."""
    value = OFFSET
    for byte in ngram.encode():
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * PRIME) & MASK
    return value


def ngram_rows(word: str, config: WordVectorsConfig) -> list[int]:
    """The rows of a word's n-grams; none if the model has no n-grams."""
    if not config.ngram_rows:
        return []
    found = ngrams(word, config.shortest, config.longest)
    return [config.source.vocab + hashed(each) % config.ngram_rows for each in found]


def all_rows(words: Sequence[str], config: WordVectorsConfig) -> Rows:
    """The rows of the n-grams of every word."""
    if not config.ngram_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    return joined(ngram_rows(word, config) for word in words)


def joined(rows: Iterable[Sequence[int]]) -> Rows:
    """Rows of several words, one after the other."""
    lists = list(rows)
    starts = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return starts, np.array([row for each in lists for row in each], np.int32)
