"""Tags: labels word by word to entities and back.

    IOB1   I-X goes on, and begins after anything that is not X; B-X only where one X follows another
    BIO    B-X begins, I-X goes on
    IOBES  B-X begins, I-X goes on, E-X ends, S-X is a whole one; BILOU says L for E and U for S

One rule reads them all, that of the CoNLL scorer and of `seqeval`: an entity begins at B or S, and at an I or E that
has nothing of its type before it to go on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

Span = tuple[str, int, int]
"""Type, first word, and the word after the last."""
Scheme = Literal["bio", "iobes", "plain"]
"""How a model's labels say where entities are; plain labels stand for themselves, as parts of speech do."""

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
"""Prefix in a file → the one of IOBES that it stands for."""


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix and type: `B-PER` is (B, PER), `O` is (O, "")."""
    prefix, _, kind = tag.partition("-")
    return PREFIXES.get(prefix, prefix), kind


def has_prefix(tag: str) -> bool:
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
        prefix, kind = split_tag(tag)
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
    if not marked or not all(map(has_prefix, marked)):
        return "plain"
    return "iobes" if any(label[0] in "ES" for label in marked) else "bio"
