"""Entities: labels word by word to spans and back, the labellings that are legal, and how spans are scored.

    IOB1   I-X goes on, and begins after anything that is not X; B-X only where one X follows another
    BIO    B-X begins, I-X goes on
    IOBES  B-X begins, I-X goes on, E-X ends, S-X is a whole one; BILOU says L for E and U for S

One rule reads them all, that of the CoNLL scorer and of `seqeval`: an entity begins at B or S, and at an I or E that
has nothing of its type before it to go on with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Span = tuple[str, int, int]
"""Type, first word, and the word after the last."""
Scheme = Literal["bio", "iobes", "plain"]
"""How a model's labels say where entities are; plain labels stand for themselves, as parts of speech do."""

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
"""Prefix in a file → the one of IOBES that it stands for."""
NOTHING, MOVED = "(none)", "(other borders)"
"""In a confusion table: no entity there; one that overlaps."""


def parts(tag: str) -> tuple[str, str]:
    """Prefix and type: `B-PER` is (B, PER), `O` is (O, "")."""
    prefix, _, kind = tag.partition("-")
    return PREFIXES.get(prefix, prefix), kind


def prefixed(tag: str) -> bool:
    """Whether a tag says where an entity begins or goes on."""
    prefix, dash, kind = tag.partition("-")
    return prefix in PREFIXES and bool(dash and kind)


def spans(tags: Sequence[str], scheme: Scheme = "bio") -> list[Span]:
    """The entities of a sentence, in order; with plain labels every word is one."""
    if scheme == "plain":
        return [(tag, at, at + 1) for at, tag in enumerate(tags)]
    found: list[Span] = []
    before, kind_before, begin = OUTSIDE, "", 0
    for at, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = parts(tag)
        apart = kind != kind_before or before in "ES"
        if before != OUTSIDE and (apart or prefix in "OBS"):
            found.append((kind_before, begin, at))
        if prefix in "BS" or before == OUTSIDE or apart:
            begin = at
        before, kind_before = prefix, kind
    return found


def to_tags(entities: Iterable[Span], words: int, scheme: Scheme = "bio") -> list[str]:
    """The labels of a sentence of so many words."""
    tags = [OUTSIDE] * words
    for kind, begin, end in entities:
        if scheme == "plain":
            tags[begin] = kind
            continue
        tags[begin:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - begin - 1)
        if scheme == "iobes":
            tags[end - 1] = f"{'S' if end - begin == 1 else 'E'}-{kind}"
    return tags


def labels_for(kinds: Iterable[str], scheme: Scheme = "bio") -> tuple[str, ...]:
    """All labels of these types, in an order that does not depend on the data's."""
    if scheme == "plain":
        return tuple(sorted(set(kinds)))
    prefixes = "BI" if scheme == "bio" else "BIES"
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in sorted(set(kinds)) for prefix in prefixes))


def scheme_of(labels: Sequence[str]) -> Scheme:
    """What a model's labels say, by their looks."""
    marked = [label for label in labels if label != OUTSIDE]
    if not marked or not all(map(prefixed, marked)):
        return "plain"
    return "iobes" if any(label[0] in "ES" for label in marked) else "bio"


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
            reading.marks.update(parts(tag)[0] for tag in tags)
            last: Span = ("", 0, 0)
            for kind, begin, end in spans(tags):
                first = parts(tags[begin])[0]
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


Scores = NDArray[np.float64]


def decode(scores: Sequence[Scores], labels: Sequence[str], how: Literal["argmax", "legal"]) -> list[list[str]]:
    """Labels of sentences from log-probabilities (words, labels): the best for each word, or the best legal row.

    Legal is what the scheme allows: no I-X without a beginning. Nothing is learned for it, it is only a search.
    """
    scheme = scheme_of(labels)
    if how == "argmax" or scheme == "plain":
        return [[labels[i] for i in row.argmax(1)] for row in scores]
    first, follows, last = legal_moves(labels, scheme)
    order = sorted(range(len(scores)), key=lambda i: len(scores[i]))
    result: list[list[str]] = [[] for _ in scores]
    for at in range(0, len(order), 256):
        rows = order[at : at + 256]
        for row, best in zip(rows, _best_paths([scores[i] for i in rows], first, follows, last), strict=True):
            result[row] = [labels[i] for i in best]
    return result


def legal_moves(labels: Sequence[str], scheme: Scheme) -> tuple[Scores, Scores, Scores]:
    """0 for what may come first, (after, before) follow, and come last; -inf for what may not."""
    split = [parts(label) for label in labels]

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


def _best_paths(rows: Sequence[Scores], first: Scores, follows: Scores, last: Scores) -> list[list[int]]:
    """Viterbi 1967, all rows at once; a row that is at its end stays as it is."""
    lengths = np.array([len(row) for row in rows])
    width = int(lengths.max())
    if not width:
        return [[] for _ in rows]
    scores = np.zeros((len(rows), width, len(first)))
    for i, values in enumerate(rows):
        scores[i, : len(values)] = values
    total = first + scores[:, 0]
    came = np.zeros(scores.shape, dtype=np.int64)
    for at in range(1, width):
        ways = total[:, None, :] + follows  # (rows, after, before)
        came[:, at] = ways.argmax(2)
        going = (lengths > at)[:, None]
        total = np.where(going, ways.max(2) + scores[:, at], total)
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
