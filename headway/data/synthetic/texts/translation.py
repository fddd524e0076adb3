"""Synthetic translation: English sentences and their translations into Velmish, an invented language.

Velmish has the place first, the verb last, and adjectives after their nouns. Articles and adjectives agree with the two
genders of nouns; plural, past and negation are endings.

    The small dogs did not see a bird in the garden.   →   Dar lumet sa kovani pikani un tirka ma noresuni.
"""

from __future__ import annotations

import random
from typing import NamedTuple

NOUNS = {
    "dog": ("kova", 0), "bird": ("tirka", 0), "girl": ("salma", 0), "king": ("dravo", 1), "boy": ("hulmo", 1),
    "horse": ("benra", 0), "doctor": ("pirolo", 1), "teacher": ("omena", 0), "wolf": ("grusko", 1),
    "sailor": ("mavelo", 1), "farmer": ("tosdo", 1), "queen": ("irisa", 0), "cat": ("felma", 0),
    "student": ("rendo", 1),
}  # fmt: skip
"""English → Velmish and its gender."""
PLURALS = {"wolf": "wolves"}
ADJECTIVES = {
    "small": "pik", "big": "groml", "old": "venat", "young": "lirn", "red": "rosk", "happy": "sunel", "hungry": "frek",
    "tired": "dolm", "clever": "zint", "brave": "hart",
}  # fmt: skip
VERBS = {
    "see": ("saw", "nor"), "help": ("helped", "asil"), "follow": ("followed", "tref"), "hear": ("heard", "lusk"),
    "find": ("found", "veld"), "call": ("called", "kemr"), "teach": ("taught", "omes"), "chase": ("chased", "hast"),
    "like": ("liked", "amal"), "push": ("pushed", "strup"),
}  # fmt: skip
"""English → its past, and the Velmish stem."""
PLACES = {
    "in the garden": "dar lumet", "near the river": "sil vodan", "in the house": "dar kasot",
    "on the road": "pon viral", "at the market": "sil torgun", "under the tree": "bas arbon", "by the sea": "sil maren",
}  # fmt: skip


class Phrase(NamedTuple):
    """A noun phrase."""

    noun: str
    adjective: str
    many: bool
    known: bool
    """Whether the article is definite."""

    def english(self) -> str:
        article = "the" if self.known else "some" if self.many else "a"
        article = "an" if article == "a" and (self.adjective or self.noun)[0] in "aeiou" else article
        noun = PLURALS.get(self.noun, self.noun + "s") if self.many else self.noun
        return " ".join(word for word in (article, self.adjective, noun) if word)

    def velmish(self) -> str:
        noun, gender = NOUNS[self.noun]
        ending = "ao"[gender] + ("ni" if self.many else "")
        article = ("so" if gender else "sa") if self.known else "pel" if self.many else "un"
        words = [article, noun + ("ni" if self.many else "")]
        if self.adjective:
            words.append(ADJECTIVES[self.adjective] + ending)
        return " ".join(words)


def make_translations(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `count` different sentences and their translations; equal seeds give equal sentences."""
    rng = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        english, velmish = _sentence(rng)
        found[english] = velmish
    return list(found.items())


def _sentence(rng: random.Random) -> tuple[str, str]:
    actor = other = _phrase(rng)
    while other.noun == actor.noun:
        other = _phrase(rng)
    verb, place = rng.choice(list(VERBS)), rng.choice(["", *PLACES])
    past, negated = rng.random() < 0.5, rng.random() < 0.3
    english = " ".join([actor.english(), _english_verb(verb, actor.many, past, negated), other.english(), place])
    words = [PLACES.get(place, ""), actor.velmish(), other.velmish(), "ma" if negated else ""]
    words.append(VERBS[verb][1] + ("esu" if past else "is") + ("ni" if actor.many else ""))
    velmish = " ".join(word for word in words if word)
    return _capitalize(english), _capitalize(velmish)


def _phrase(rng: random.Random) -> Phrase:
    noun, adjective = rng.choice(list(NOUNS)), rng.choice(["", *ADJECTIVES])
    return Phrase(noun, adjective, rng.random() < 0.4, rng.random() < 0.6)


def _english_verb(verb: str, many: bool, past: bool, negated: bool) -> str:
    if negated:
        return f"{'did' if past else 'do' if many else 'does'} not {verb}"
    if past:
        return VERBS[verb][0]
    ending = "es" if verb.endswith(("ch", "sh")) else "s"
    return verb if many else verb + ending


def _capitalize(text: str) -> str:
    text = text.strip()
    return text[0].upper() + text[1:] + "."
