"""Synthetic paraphrases: synonyms, active or passive voice, the place first or last."""

from __future__ import annotations

import random

PEOPLE = (
    ("doctor", "physician"), ("teacher", "instructor"), ("child", "kid"), ("lawyer", "attorney"),
    ("writer", "author"), ("thief", "burglar"), ("sailor", "seaman"), ("guest", "visitor"),
    ("soldier", "warrior"), ("student", "pupil"), ("boss", "manager"), ("friend", "companion"),
)  # fmt: skip
"""Synonyms: each sentence of a pair has one of them."""
QUALITIES = (
    ("small", "little"), ("big", "large"), ("clever", "smart"), ("rich", "wealthy"), ("angry", "furious"),
    ("happy", "glad"), ("tired", "weary"), ("strange", "odd"), ("brave", "bold"), ("quiet", "silent"),
)  # fmt: skip
DEEDS = (
    ("chased", "pursued"), ("helped", "assisted"), ("watched", "observed"), ("phoned", "called"),
    ("scared", "frightened"), ("hired", "employed"), ("rescued", "saved"), ("fooled", "tricked"),
    ("praised", "lauded"), ("found", "discovered"),
)  # fmt: skip
PLACES = (
    ("in the forest", "in the woods"), ("at the shop", "at the store"), ("on the road", "on the street"),
    ("by the sea", "by the ocean"), ("near the house", "near the home"), ("in the city", "in the town"),
    ("on the boat", "on the ship"), ("at the school", "at the academy"),
)  # fmt: skip


def make_paraphrases(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `count` pairs with different meanings; equal seeds give equal pairs."""
    rng = random.Random(seed)
    meanings: dict[tuple[int, ...], None] = {}
    sizes = [len(part) for part in (QUALITIES, PEOPLE, DEEDS, QUALITIES, PEOPLE, PLACES)]
    while len(meanings) < count:
        meaning = tuple(rng.randrange(size) for size in sizes)
        if meaning[0] != meaning[3] and meaning[1] != meaning[4]:
            meanings[meaning] = None
    return [_said_twice(meaning, rng) for meaning in meanings]


def _said_twice(meaning: tuple[int, ...], rng: random.Random) -> tuple[str, str]:
    parts = (QUALITIES, PEOPLE, DEEDS, QUALITIES, PEOPLE, PLACES)
    flips = [rng.randrange(2) for _ in parts]
    first = [words[i][flip] for words, i, flip in zip(parts, meaning, flips, strict=True)]
    second = [words[i][1 - flip] for words, i, flip in zip(parts, meaning, flips, strict=True)]
    return _sentence(first, rng), _sentence(second, rng)


def _sentence(words: list[str], rng: random.Random) -> str:
    quality, person, deed, other_quality, other, place = words
    actor, object_ = f"the {quality} {person}", f"the {other_quality} {other}"
    said = f"{actor} {deed} {object_}" if rng.randrange(2) else f"{object_} was {deed} by {actor}"
    said = f"{said} {place}" if rng.randrange(2) else f"{place}, {said}"
    return said[0].upper() + said[1:] + "."
