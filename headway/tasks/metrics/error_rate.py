"""Word and character error rates: edits that turn a text into its reference, over the length of the reference."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

import numpy as np

from headway.tasks.metrics.bootstrap import Metric

Normalization = Literal["words", "none"]
_APART = re.compile(r"(?<!\w)'|'(?!\w)")
"""Apostrophes that are no part of a word."""


def error_rate(
    name: Literal["wer", "cer"], texts: Sequence[str], references: Sequence[str], normalization: Normalization = "words"
) -> Metric:
    """The rate over all texts together. It may be above 1, where a text is longer than its reference."""
    found = []
    for text, reference in zip(texts, references, strict=True):
        ours, theirs = (_units(normalized(each, normalization), name) for each in (text, reference))
        found.append((edits(ours, theirs), len(theirs)))
    counts = np.array(found, np.float64).reshape(-1, 2)
    return Metric(name, counts, lambda total: float(total[0] / max(1.0, total[1])), f"{name}|{normalization}")


def normalized(text: str, how: Normalization) -> str:
    """words: one form of each letter (NFKC), lower case, no punctuation but apostrophes inside words, single spaces."""
    if how == "none":
        return text
    plain = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    kept = "".join(_kept(letter) for letter in plain)
    return " ".join(_APART.sub(" ", kept).split())


def _kept(letter: str) -> str:
    if letter == "'" or unicodedata.category(letter)[0] in "LMN":
        return letter
    return " "


def _units(text: str, name: str) -> Sequence[str]:
    return text.split() if name == "wer" else text.strip()


def edits(text: Sequence[str], reference: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions between two sequences (Levenshtein 1966)."""
    ids = {each: i for i, each in enumerate(dict.fromkeys([*text, *reference]))}
    ours, theirs = (np.array([ids[each] for each in some], np.int64) for some in (text, reference))
    place = np.arange(len(theirs) + 1)
    row = place.copy()
    for number, unit in enumerate(ours, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (theirs != unit))
        row = np.concatenate([[number], best]) - place
        row = np.minimum.accumulate(row) + place  # from the left, each insertion costs one
    return int(row[-1])
