"""Texts without what does not count: case folded, accents composed, each white space one space.

`text_key` says what that means, for one text. `fold_texts` gives the same bytes for many texts at once, by numpy over
all their bytes; it leaves out the few texts with characters that depend on their neighbours or grow.
"""

from __future__ import annotations

import unicodedata

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Bytes = NDArray[np.uint8]

BLANKS = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f "
"""ASCII characters that Python's `str.split` splits at."""
FOLD = bytes(range(256)).lower().translate(bytes.maketrans(BLANKS, b" " * len(BLANKS)))
"""Every byte → in lower case, and blanks as spaces."""
SPACE = ord(" ")
ALONE = 0xFFFFFFFF
"""Stands for a character whose text needs `text_key`; no UTF-8 has the byte 0xff."""
JAMO = range(0x1100, 0x1200)
"""Letters that are composed to Korean syllables."""
_folded = np.zeros(0x110000, dtype=np.uint32)
"""Code point → the bytes of the folded character in UTF-8, the first one lowest; 0: not looked up yet."""


def text_key(raw: bytes) -> bytes:
    """A text, in UTF-8, without what does not count. Equal texts have equal keys."""
    return " ".join(unicodedata.normalize("NFC", raw.decode().casefold()).split()).encode()


def fold_texts(raw: bytes, offsets: Counts) -> tuple[bytes, Counts, Counts, Counts]:
    """Fold texts that stand one after another in UTF-8.

    Returns their bytes, offsets and numbers of words, and the indices of the texts that `text_key` has to fold: what is
    returned for those is wrong.
    """
    folded = raw.translate(FOLD)
    alone = np.empty(0, dtype=np.int64)
    if not raw.isascii():
        folded, offsets, alone = _fold_beyond_ascii(np.frombuffer(bytearray(folded), dtype=np.uint8), offsets)
    folded, offsets, words = _single_spaces(folded, offsets)
    return folded, offsets, words, alone


def _fold_beyond_ascii(folded: Bytes, offsets: Counts) -> tuple[bytes, Counts, Counts]:
    """Fold the characters of two to four bytes, in place where they need as many or fewer bytes."""
    first = np.flatnonzero(folded >= 0xC0)  # the first byte of each character beyond ASCII
    lead = folded[first]
    alone, surplus = [], []
    for size, least, most in ((2, 0xC0, 0xE0), (3, 0xE0, 0xF0), (4, 0xF0, 0xFF)):
        at = first[(lead >= least) & (lead < most)]
        now, new = _looked_up(folded, at, size)
        changed = np.flatnonzero(now != new)
        at, new = at[changed], new[changed]
        alone.append(at[new == ALONE])
        at, new = at[new != ALONE], new[new != ALONE]
        for i in range(size):
            byte = (new >> np.uint32(8 * i)).astype(np.uint8)
            folded[at + i] = byte
            surplus.append(at[byte == 0] + i)
    left_out = np.unique(np.searchsorted(offsets, np.concatenate(alone), side="right") - 1)
    drop = np.sort(np.concatenate(surplus))
    return *_without(folded, offsets, drop), left_out


def _looked_up(folded: Bytes, at: Counts, size: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The bytes of the characters of one size, as they are and as they are folded."""
    now = np.zeros(len(at), dtype=np.uint32)
    code = np.zeros(len(at), dtype=np.uint32)
    for i in range(size):
        byte = folded[at + i].astype(np.uint32)
        now |= byte << np.uint32(8 * i)
        code = (code << np.uint32(6)) | (byte & np.uint32((0x7F >> size) if i == 0 else 0x3F))
    new = _folded[code]
    if not new.all():
        for unknown in np.unique(code[new == 0]).tolist():
            _folded[unknown] = _fold_character(chr(unknown))
        new = _folded[code]
    return now, new


def _fold_character(letter: str) -> int:
    """The entry of a character in `_folded`."""
    folded = " " if letter.isspace() else letter.casefold()
    new = folded.encode()
    composes = any(unicodedata.category(c)[0] == "M" or ord(c) in JAMO for c in folded)
    if composes or unicodedata.normalize("NFC", folded) != folded or len(new) > len(letter.encode()):
        return ALONE
    return int.from_bytes(new, "little")


def _single_spaces(folded: bytes, offsets: Counts) -> tuple[bytes, Counts, Counts]:
    """Leave one space between words, none around a text; and count the words."""
    data = np.frombuffer(folded, dtype=np.uint8)
    spaces = np.flatnonzero(data == SPACE)
    filled = np.flatnonzero(np.diff(offsets))
    starts, ends = offsets[:-1][filled], offsets[1:][filled] - 1
    drop = np.zeros(len(spaces), dtype=bool)
    drop[1:] = spaces[1:] == spaces[:-1] + 1
    drop[np.searchsorted(spaces, starts[data[starts] == SPACE])] = True  # the first of a text
    trailing = data[ends] == SPACE
    if trailing.any():  # of spaces in a row the first one is left: at the end of a text it goes too
        runs = np.maximum.accumulate(np.where(drop, -1, np.arange(len(spaces))))[
            np.searchsorted(spaces, ends[trailing])
        ]
        drop[runs[(runs >= 0) & (spaces[runs] >= starts[trailing])]] = True
    if drop.any():
        folded, offsets = _without(data, offsets, dropped := spaces[drop])
        spaces = spaces[~drop] - np.searchsorted(dropped, spaces[~drop])
    return folded, offsets, np.diff(np.searchsorted(spaces, offsets)) + (np.diff(offsets) > 0)


def _without(data: Bytes, offsets: Counts, drop: Counts) -> tuple[bytes, Counts]:
    """Take out the bytes at these places, which are in order; and the offsets after that."""
    if len(drop):
        keep = np.ones(len(data), dtype=bool)
        keep[drop] = False
        data, offsets = data[keep], offsets - np.searchsorted(drop, offsets)
    return data.tobytes(), offsets
