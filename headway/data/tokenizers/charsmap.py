"""The normalization table of a sentencepiece model as normalizers of `tokenizers`.

The table (precompiled charsmap) maps characters and short runs of them to replacements; the longest run wins.
`tokenizers` reads the table, but looks up whole grapheme clusters, and uses only the first match: of `²` with an accent
only `2` is left. So base characters and combining marks are separated, looked up one by one, and composed again by NFC
where the table composes: not after a character that had a mark already, and not across marks in another order than
Unicode's, where NFC would do more than the table.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

APART = "\0"
"""Separates characters; no table contains it. It is one byte, because `tokenizers` loses offsets with longer ones."""
TABLE_LIMIT, LEVEL = 4_000_000, 2048
"""The most bytes of a table (sentencepiece's own have 250,000), and nodes of its tree that are walked together."""
SYLLABLES = range(0xAC00, 0xD7A4)
VOWELS_AND_ENDINGS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
"""Korean syllables, and the vowels and final consonants of decomposed ones; Unicode composes them by arithmetic."""
SCRIPTS = range(0xC0, 0x3100)
"""Ranges of characters that take marks, and of marks, except for a few ancient scripts."""


def charsmap_normalizers(table: bytes) -> list[Normalizer]:
    """Return the normalizers of a table, in order; none for an empty table."""
    from tokenizers import Regex
    from tokenizers.normalizers import NFC, Precompiled, Replace

    if not table:
        return []
    lookup = Precompiled(table)
    parted = [Replace(Regex(r"(?!\A)(?=[^\x00-\x7f]|\n)"), APART), lookup]
    if lookup.normalize_str("e\N{COMBINING ACUTE ACCENT}") == "é":
        parted += [Replace(Regex(_joints()), ""), NFC()]
    return [*parted, Replace(APART, "")]


def charsmap_growth(table: bytes) -> float:
    """Return the most that the table lengthens a run of characters, as a factor of bytes; ValueError for a bad table.

    The runs are a tree in a double array (Aoe 1989, in the layout of darts-clone, with equal branches shared). It is
    walked level by level; a shared branch counts at its first visit, after the fewest bytes.
    """
    if not table:
        return 1.0
    size = int.from_bytes(table[:4], "little")
    if len(table) > TABLE_LIMIT or size % 4 or not 4 <= size <= len(table) - 5 or table[-1]:
        raise ValueError(f"its normalization table of {len(table):,} bytes is invalid")
    units, text = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64), table[4 + size :]
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 0)
    level, most, depth = np.array([_offset(units[0])]), 1.0, 0
    seen = np.zeros(len(units), dtype=bool)
    while len(level):
        depth += 1
        found = np.concatenate([_children(units, part) for part in np.array_split(level, -(-len(level) // LEVEL))])
        found = np.unique(found[~seen[found]])
        seen[found] = True
        level = found ^ _offset(units[found])
        leaves = level[(units[found] >> 8) & 1 == 1]
        values = units[leaves[leaves < len(units)]] & 0x7FFFFFFF
        if len(values) < len(leaves) or (values >= len(text)).any():
            raise ValueError("its normalization table points beyond its end")
        if len(values):
            most = max(most, float((ends[np.searchsorted(ends, values)] - values).max()) / depth)
    return most


def _offset(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return (units >> 10) << ((units & 0x200) >> 6)


def _children(units: NDArray[np.int64], level: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the children of nodes with these offsets."""
    places = level[:, None] ^ np.arange(1, 256)
    inside = places < len(units)
    labels = units[np.where(inside, places, 0)] & 0x800000FF
    found: NDArray[np.int64] = places[inside & (labels == np.arange(1, 256))]
    return found


@cache
def _joints() -> str:
    """A pattern for the places where a mark may compose with the character before it."""
    whole = {c for c in map(chr, SCRIPTS) if unicodedata.decomposition(c) and _composed(c)}
    marks = {mark for c in whole for mark in unicodedata.normalize("NFD", c)[1:]}
    whole |= {chr(c) for c in SYLLABLES}
    by_class: dict[int, set[str]] = {0: {chr(c) for c in VOWELS_AND_ENDINGS}}
    for mark in marks:
        by_class.setdefault(unicodedata.combining(mark), set()).add(mark)
    patterns = []
    for order, following in sorted(by_class.items()):
        later = {mark for mark in map(chr, SCRIPTS) if order and unicodedata.combining(mark) > order}
        patterns.append(f"(?<![{_ranges(whole | later)}]){APART}(?=[{_ranges(following)}])")
    return "|".join(patterns)


def _composed(c: str) -> bool:
    return len(unicodedata.normalize("NFD", c)) > 1 and unicodedata.normalize("NFC", c) == c


def _ranges(characters: Iterable[str]) -> str:
    """A set of characters as the inside of a bracket expression."""
    ends: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ends and ends[-1][1] == code - 1:
            ends[-1][1] = code
        else:
            ends.append([code, code])
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ends)
