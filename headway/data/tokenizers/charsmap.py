"""The rules by which sentencepiece spells a text anew before it cuts it, as a normalizer of `tokenizers`.

A model file has them as one table: characters, or short runs of them, and what to write instead; the longest run
wins. `tokenizers` reads that table, but looks up what a reader would call one character, a letter with its marks, and
by its first entry: of `²` with an accent over it nothing but `2` is left. So letters and marks are parted, looked up
one by one, and put together again by Unicode's own rule (NFC) where the table does so: not where a letter had a mark
already, nor across marks in another order than Unicode's, which is where the rule does more than the table.
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
"""Parts characters: no table can have it. `tokenizers` loses count where something longer than a byte is put in."""
TABLE_LIMIT, LEVEL = 4_000_000, 2048
"""Bytes of a table, of which sentencepiece's own take 250,000; nodes of its tree that are looked at together."""
SYLLABLES = range(0xAC00, 0xD7A4)
VOWELS_AND_ENDINGS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
"""Korean: whole syllables, and the parts of one that follow its first letter; the rule for them is arithmetic."""
SCRIPTS = range(0xC0, 0x3100)
"""Characters that marks are put on, and marks, but for a few ancient scripts."""


def charsmap_normalizers(table: bytes) -> list[Normalizer]:
    """What to do with a text, in this order; nothing where there is no table."""
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
    """How many times as many bytes a table writes instead of a run of characters, at most; a ValueError if it is none.

    The runs are a tree in a double array (Aoe 1989, as darts-clone lays it out, with equal branches shared), which is
    walked level by level; a shared branch counts where it comes first, after the fewest bytes.
    """
    if not table:
        return 1.0
    size = int.from_bytes(table[:4], "little")
    if len(table) > TABLE_LIMIT or size % 4 or not 4 <= size <= len(table) - 5 or table[-1]:
        raise ValueError(f"its table of characters, of {len(table):,} bytes, is none")
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
            raise ValueError("its table of characters points beyond its end")
        if len(values):
            most = max(most, float((ends[np.searchsorted(ends, values)] - values).max()) / depth)
    return most


def _offset(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return (units >> 10) << ((units & 0x200) >> 6)


def _children(units: NDArray[np.int64], level: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the nodes below some, whose own offsets are given."""
    places = level[:, None] ^ np.arange(1, 256)
    inside = places < len(units)
    labels = units[np.where(inside, places, 0)] & 0x800000FF
    found: NDArray[np.int64] = places[inside & (labels == np.arange(1, 256))]
    return found


@cache
def _joints() -> str:
    """Where a mark follows that may become one with what is before it, as a pattern."""
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
    """A set of characters as a pattern has it between brackets."""
    ends: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ends and ends[-1][1] == code - 1:
            ends[-1][1] = code
        else:
            ends.append([code, code])
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ends)
