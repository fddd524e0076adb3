"""ROUGE (Lin 2004): how many words, pairs of words, and words in order a summary shares with a reference.

Words are as the package `rouge-score` has them without stemming: lower case, letters a to z and digits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

METRICS = ("rouge_1", "rouge_2", "rouge_l")
SIGNATURE = "ROUGE-1, ROUGE-2, ROUGE-L; F of each text, the best of its references; no stemming"


def rouge(text: str, references: Sequence[str]) -> tuple[float, float, float]:
    """F of ROUGE-1, ROUGE-2 and ROUGE-L, from 0 to 1, each against the reference that gives the most."""
    words, others = _words(text), [_words(reference) for reference in references]
    return (
        max(_by_grams(words, other, 1) for other in others),
        max(_by_grams(words, other, 2) for other in others),
        max(_by_order(words, other) for other in others),
    )


def _words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _by_grams(words: Sequence[str], other: Sequence[str], size: int) -> float:
    ours, theirs = (Counter(tuple(row[i : i + size]) for i in range(len(row) - size + 1)) for row in (words, other))
    return _f((ours & theirs).total(), ours.total(), theirs.total())


def _by_order(words: Sequence[str], other: Sequence[str]) -> float:
    """By the longest row of words that both have, with others between."""
    before = [0] * (len(other) + 1)
    for word in words:
        row = [0]
        for j, same in enumerate(other):
            row.append(before[j] + 1 if word == same else max(before[j + 1], row[j]))
        before = row
    return _f(before[-1], len(words), len(other))


def _f(shared: int, ours: int, theirs: int) -> float:
    return 2 * shared / (ours + theirs) if shared else 0.0
