"""Tagging schemes: tags of words to entities, and back.

    IOB1   I-X is inside X, and starts it after another type; B-X only between two adjacent X
    BIO    B-X starts X, I-X continues it
    IOBES  B-X starts, I-X continues, E-X ends, S-X is a single word; BILOU has L for E and U for S

One rule decodes all schemes, that of the CoNLL scorer and of `seqeval`: an entity starts at B or S, and at an I or E
that follows no tag of its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

Span = tuple[str, int, int]
"""Type, first word, and end (one after the last word)."""
Scheme = Literal["bio", "iobes", "plain"]
"""The scheme of a model's labels; plain labels have no prefixes, for example parts of speech."""

OUTSIDE = "O"
PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I"}
"""Prefix in a file → prefix of IOBES."""


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into prefix and type: `B-PER` is (B, PER), `O` is (O, "")."""
    prefix, _, kind = tag.partition("-")
    return PREFIXES.get(prefix, prefix), kind


def has_prefix(tag: str) -> bool:
    """Whether a tag has a prefix of a scheme."""
    prefix, dash, kind = tag.partition("-")
    return prefix in PREFIXES and bool(dash and kind)


def spans(tags: Sequence[str], scheme: Scheme = "bio") -> list[Span]:
    """Return the entities of a sentence in order; with plain labels every word is an entity."""
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
    """Return the tags of a sentence with this number of words."""
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
    """Return all labels of these types, sorted, so that their order does not depend on the data."""
    if scheme == "plain":
        return tuple(sorted(set(kinds)))
    prefixes = "BI" if scheme == "bio" else "BIES"
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in sorted(set(kinds)) for prefix in prefixes))


def scheme_of(labels: Sequence[str]) -> Scheme:
    """Detect the scheme of a model's labels."""
    marked = [label for label in labels if label != OUTSIDE]
    if not marked or not all(map(has_prefix, marked)):
        return "plain"
    return "iobes" if any(label[0] in "ES" for label in marked) else "bio"
