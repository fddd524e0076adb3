"""Texts folded together have the keys of texts folded alone, whatever their characters."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headway.data.profile.folding import fold_texts, text_key
from headway.data.profile.texts import measure

CHARACTERS = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0x110000, 97))]
TEXT = st.text(
    st.sampled_from("aB \t\n\u00a0\x1cäÄ\u0301\u3000ßςΣİﬁ中가\u11a8\u202f\x85.") | st.characters(codec="utf-8")
)


def keys(texts: list[str]) -> tuple[list[bytes | None], list[int]]:
    """The keys and numbers of words of texts folded together; no key for a text that is left to `text_key`."""
    raw = [text.encode() for text in texts]
    folded, bounds, words, alone = fold_texts(b"".join(raw), np.cumsum([0, *map(len, raw)]))
    found: list[bytes | None] = [folded[a:b] for a, b in pairwise(bounds.tolist())]
    for i in alone.tolist():
        found[i] = None
    return found, words.tolist()


@given(st.lists(TEXT))
def test_texts_measured_together_are_those_measured_alone(texts: list[str]) -> None:
    """Against Python's own functions, text by text."""
    found = measure(pa.array(["before", *texts], pa.string())[1:])
    plain = [unicodedata.normalize("NFC", " ".join(text.casefold().split())) for text in texts]
    assert found.characters.tolist() == [len(text) for text in texts]
    assert found.bytes.tolist() == [len(text.encode()) for text in texts]
    assert found.words.tolist() == [len(text.split()) for text in texts]
    assert [text_key(text.encode()).decode() for text in texts] == plain
    assert [found.hashes.tolist().index(h) for h in found.hashes.tolist()] == [plain.index(text) for text in plain]
    assert found.nul == any("\0" in text for text in texts)


def test_every_character_folds_as_it_does_alone() -> None:
    found, words = keys(CHARACTERS)
    assert all(key is None or key == text_key(letter.encode()) for letter, key in zip(CHARACTERS, found, strict=True))
    assert all(key is None or count == len(key.split()) for key, count in zip(found, words, strict=True))
    assert sum(key is None for key in found) < 6000  # marks, letters of Korean syllables, those that grow


def test_a_character_that_may_join_the_one_before_it_is_left_alone() -> None:
    """What follows in a canonical composition, and what changes places with a neighbour."""
    second = {
        chr(int(parts[1], 16))
        for letter in CHARACTERS
        if len(parts := unicodedata.decomposition(letter).split()) == 2 and not parts[0].startswith("<")
    }
    second |= {letter for letter in CHARACTERS if unicodedata.combining(letter)}
    second |= {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    stay = sorted(letter for letter in second if letter.casefold() == letter)  # U+0345 becomes a letter
    assert len(stay) > 900
    assert keys(stay)[0] == [None] * len(stay)


def test_ordinary_texts_are_not_left_alone() -> None:
    """Most languages, typographic quotes, unusual spaces, line breaks: folded together."""
    texts = [
        "Über’s “Ärgste”…",
        "c’est\u00a0: l’Œuvre",
        "Привет,  МИР",
        "你好\u3000世界",
        "안녕하세요",
        "a\n\n b\t",
        " ",
    ]
    folded, words = keys(texts)
    assert folded == [text_key(text.encode()) for text in texts]
    assert words == [2, 3, 2, 2, 1, 2, 0]
