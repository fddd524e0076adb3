"""Synthetic tagged sentences, and synthetic stories with questions, from small grammars.

Names of people, places and companies have the same syllables: only the context of a name gives its type.
"""

from __future__ import annotations

import random

from headway.data.datasets.conll import Sentence
from headway.data.datasets.squad import Question
from headway.data.datasets.tags import to_tags

SYLLABLES = ("bra", "do", "fen", "gor", "hal", "ki", "lun", "mar", "nes", "or", "pel", "ri", "sa", "tol", "ul", "ven")
MONTHS = ("January", "March", "April", "May", "June", "August", "October", "November")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TITLES = {
    "PER": "Mr {} said|Mrs {} told reporters|Dr {} agreed|{} was born|{} , aged 41 , won|{} and his brother came",
    "LOC": "it rained in {}|roads to {} were closed|the mayor of {} resigned|voters near {} waited|people left {}",
    "ORG": "shares of {} fell|{} cut its prices|workers at {} went home|profits of {} rose|{} hired forty engineers",
    "DATE": "it happened on {}|on {} nobody came|it will end on {}|since {} nothing changed|by {} all was quiet",
}
"""Type → clauses, separated by |, with a blank for the entity."""
JOINTS = (", and", ", but", "while", ";", "because")

PEOPLE = ("anna", "boris", "clara", "david", "emma", "felix", "greta", "hugo", "ines", "jonas", "karla", "leo")
FACTS = {
    "{} lives in {} .": ("where does {} live ?", ("paris", "london", "rome", "oslo", "madrid", "vienna", "berlin")),
    "{} works as a {} .": ("what is the job of {} ?", ("baker", "doctor", "pilot", "painter", "teacher", "lawyer")),
    "{} bought {} .": ("what did {} buy ?", ("a red car", "an old house", "two books", "a small boat", "a piano")),
    "{} left on {} .": ("when did {} leave ?", ("monday", "tuesday", "friday", "sunday", "the first of may")),
    "{} met {} .": ("who did {} meet ?", ("the king", "the mayor", "a famous singer", "her uncle", "two friends")),
}
"""A fact about a person → its question, and the possible answers."""
TOLD = 4
"""Facts of a story."""
UNANSWERED = 0.25
"""Share of questions that the story does not answer."""


def make_sentences(count: int, seed: int = 0) -> list[Sentence]:
    """Return `count` sentences with BIO tags; equal seeds give equal sentences."""
    rng = random.Random(seed)
    return [_sentence(rng, number + 1) for number in range(count)]


def _sentence(rng: random.Random, number: int) -> Sentence:
    words: list[str] = []
    found = []
    for clause in range(rng.randint(1, 3)):
        if clause:
            words += rng.choice(JOINTS).split()
        kind = rng.choice(list(TITLES))
        for word in rng.choice(TITLES[kind].split("|")).split():
            if word != "{}":
                words.append(word)
                continue
            name = _date(rng) if kind == "DATE" else [_name(rng) for _ in range(rng.randint(1, 2))]
            found.append((kind, len(words), len(words) + len(name)))
            words += name
    words.append(".")
    return Sentence(tuple(words), tuple(to_tags(found, len(words))), "", number)


def _name(rng: random.Random) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))).capitalize()


def _date(rng: random.Random) -> list[str]:
    if rng.random() < 0.3:
        return [rng.choice(DAYS)]
    return [str(rng.randint(1, 28)), rng.choice(MONTHS), str(rng.randint(1950, 2020))]


def make_stories(count: int, seed: int = 0) -> list[Question]:
    """Return `count` questions, each with its own story; equal seeds give equal questions."""
    rng = random.Random(seed)
    return [_story(rng, number + 1) for number in range(count)]


def _story(rng: random.Random, number: int) -> Question:
    """Each kind of fact is told about one person only; otherwise a small model would need many more stories."""
    people, facts = rng.sample(PEOPLE, 3), rng.sample(list(FACTS), TOLD)
    told = {fact: (rng.choice(people), rng.choice(FACTS[fact][1])) for fact in facts}
    context = " ".join(fact.format(*said) for fact, said in told.items())
    if rng.random() < UNANSWERED:
        fact = rng.choice([fact for fact in FACTS if fact not in told])
        return Question(f"story {number}", FACTS[fact][0].format(rng.choice(people)), context, ())
    fact = rng.choice(facts)
    person, value = told[fact]
    start = context.index(fact.format(person, value)) + fact.format(person, "{}").index("{}")
    return Question(f"story {number}", FACTS[fact][0].format(person), context, ((value, start),))
