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

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

APART = "\0"
"""Parts characters: no table can have it. `tokenizers` loses count where something longer than a byte is put in."""
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
