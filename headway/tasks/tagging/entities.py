"""Entities: the labellings that are legal, and how spans are scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headway.data.datasets.tags import OUTSIDE, Scheme, Span, scheme_of, spans, split_tag

NOTHING, MOVED = "(none)", "(other borders)"
"""In a confusion table: no entity there; one that overlaps."""


@dataclass
class Reading:
    """What the tags of a file turn out to be, sentence by sentence."""

    marks: Counter[str]
    """How often each prefix occurs."""
    unheralded: int = 0
    """Entities that begin with I or E: usual in IOB1, and repaired in the other schemes."""
    needless: int = 0
    """Entities that begin with B where IOB1 would have I."""

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> Reading:
        reading = cls(Counter())
        for tags in sentences:
            reading.marks.update(split_tag(tag)[0] for tag in tags)
            last: Span = ("", 0, 0)
            for kind, begin, end in spans(tags):
                first = split_tag(tags[begin])[0]
                reading.unheralded += first in "IE"
                reading.needless += first == "B" and (last[0], last[2]) != (kind, begin)
                last = (kind, begin, end)
        return reading

    @property
    def scheme(self) -> str:
        if self.marks["E"] + self.marks["S"]:
            return "IOBES"
        return "IOB1" if self.unheralded and not self.needless else "BIO"

    @property
    def repaired(self) -> int:
        """Entities without a beginning that got one, as the CoNLL scorer has it."""
        return 0 if self.scheme == "IOB1" else self.unheralded


LogProbs = NDArray[np.float64]


def decode(log_probs: Sequence[LogProbs], labels: Sequence[str], how: Literal["argmax", "legal"]) -> list[list[str]]:
    """Labels of sentences from log-probabilities (words, labels): the best for each word, or the best legal row.

    Legal is what the scheme allows: no I-X without a beginning. Nothing is learned for it, it is only a search.
    """
    scheme = scheme_of(labels)
    if how == "argmax" or scheme == "plain":
        return [[labels[i] for i in row.argmax(1)] for row in log_probs]
    first, follows, last = legal_moves(labels, scheme)
    order = sorted(range(len(log_probs)), key=lambda i: len(log_probs[i]))
    result: list[list[str]] = [[] for _ in log_probs]
    for at in range(0, len(order), 256):
        rows = order[at : at + 256]
        for row, best in zip(rows, _best_paths([log_probs[i] for i in rows], first, follows, last), strict=True):
            result[row] = [labels[i] for i in best]
    return result


def legal_moves(labels: Sequence[str], scheme: Scheme) -> tuple[LogProbs, LogProbs, LogProbs]:
    """0 for what may come first, (after, before) follow, and come last; -inf for what may not."""
    split = [split_tag(label) for label in labels]

    def allowed(before: tuple[str, str], after: tuple[str, str]) -> bool:
        inside = after[0] in "IE"
        if scheme == "bio":
            return not inside or (before[0] in "BI" and before[1] == after[1])
        return (before[0] in "BI") == inside and (not inside or before[1] == after[1])

    outside = (OUTSIDE, "")
    first = np.array([allowed(outside, a) for a in split])
    follows = np.array([[allowed(b, a) for b in split] for a in split])
    last = np.array([allowed(b, outside) for b in split])
    return tuple(np.where(legal, 0.0, -np.inf) for legal in (first, follows, last))  # type: ignore[return-value]


def _best_paths(rows: Sequence[LogProbs], first: LogProbs, follows: LogProbs, last: LogProbs) -> list[list[int]]:
    """Viterbi 1967, all rows at once; a row that is at its end stays as it is."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    if not width:
        return [[] for _ in rows]
    log_probs = np.zeros((len(rows), width, len(first)))
    for i, values in enumerate(rows):
        log_probs[i, : len(values)] = values
    total = first + log_probs[:, 0]
    came = np.zeros(log_probs.shape, dtype=np.int64)
    for at in range(1, width):
        ways = total[:, None, :] + follows  # (rows, after, before)
        came[:, at] = ways.argmax(2)
        going = (lengths > at)[:, None]
        total = np.where(going, ways.max(2) + log_probs[:, at], total)
    here = (total + last).argmax(1)
    paths: list[list[int]] = [[] for _ in rows]
    for at in range(width - 1, -1, -1):
        for row in np.flatnonzero(lengths > at).tolist():
            paths[row].append(int(here[row]))
            here[row] = came[row, at, here[row]]
    return [path[::-1] for path in paths]


Counts = NDArray[np.int64]
"""Right, predicted, true."""


def counts(true: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]]) -> Counts:
    """Entities of each sentence (n, 3): right in type and both borders, predicted, true."""
    pairs = zip(true, found, strict=True)
    return np.array([(len(set(a) & set(b)), len(b), len(a)) for a, b in pairs], dtype=np.int64).reshape(-1, 3)


def f1(total: Counts) -> tuple[float, float, float]:
    """Precision, recall and their harmonic mean, over all entities; 0 where there is nothing to divide by."""
    right, found, true = (int(number) for number in total)
    precision, recall = right / found if found else 0.0, right / true if true else 0.0
    return precision, recall, 2 * right / (found + true) if found + true else 0.0


def by_type(true: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]]) -> dict[str, dict[str, float]]:
    """The same for each type, and how many entities of it there are."""
    table = {}
    for kind in sorted({span[0] for sentence in (*true, *found) for span in sentence}):
        only = [[[span for span in row if span[0] == kind] for row in rows] for rows in (true, found)]
        total = counts(only[0], only[1]).sum(0)
        names = ("precision", "recall", "f1", "entities")
        table[kind] = dict(zip(names, (*f1(total), int(total[2])), strict=True))
    return table


def confusion(true: Sequence[Sequence[Span]], found: Sequence[Sequence[Span]]) -> dict[str, dict[str, int]]:
    """True type → what was found in its place → how often; what was found where nothing is stands under (none)."""
    table: dict[str, Counter[str]] = {}
    for wanted, got in zip(true, found, strict=True):
        places = {(begin, end): kind for kind, begin, end in got}
        for kind, begin, end in wanted:
            other = MOVED if any(b < end and begin < e for b, e in places) else NOTHING
            table.setdefault(kind, Counter())[places.get((begin, end), other)] += 1
        for kind, begin, end in got:
            if not any(b < end and begin < e for _, b, e in wanted):
                table.setdefault(NOTHING, Counter())[kind] += 1
    return {kind: dict(sorted(table[kind].items())) for kind in sorted(table)}


def as_dict(span: Span, words: Sequence[str]) -> dict[str, Any]:
    """For JSON and for people."""
    kind, begin, end = span
    return {"label": kind, "text": " ".join(words[begin:end]), "words": [begin, end]}
