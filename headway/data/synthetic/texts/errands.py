"""Synthetic stories of who goes where and carries what, with several kinds of questions, from a small grammar."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from headway.data.datasets.stories import Story

PEOPLE = ("Anna", "Boris", "Clara", "David")
PLACES = ("kitchen", "garden", "office", "hallway", "cellar")
THINGS = ("milk", "apple", "lamp")
GO = ("{} went to the {}.", "{} walked to the {}.", "{} moved to the {}.")
TAKE = ("{} took the {}.", "{} picked up the {}.")
DROP = ("{} dropped the {}.", "{} put down the {}.")
NUMBERS = ("none", "one", "two", "three")
QUESTIONS = 3
"""Questions of a story."""
BETWEEN = (2, 4)
"""The fewest and the most sentences before a question."""


@dataclass
class _World:
    """What is true at a point of a story, and the sentences that say so."""

    told: list[str] = field(default_factory=list)
    at: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Person → place, and the sentence that tells it."""
    held: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Thing → who carries it, and the sentence that tells it."""

    def happen(self, rng: random.Random) -> None:
        """One more sentence."""
        free = [thing for thing in THINGS if thing not in self.held]
        acts = [self._go, *([self._take] if free and self.at else []), *([self._drop] if self.held else [])]
        rng.choices(acts, [3, 2, 1][: len(acts)])[0](rng)

    def _go(self, rng: random.Random) -> None:
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        self.at[person] = place, len(self.told)
        self.told.append(rng.choice(GO).format(person, place))

    def _take(self, rng: random.Random) -> None:
        person = rng.choice(sorted(self.at))
        thing = rng.choice([thing for thing in THINGS if thing not in self.held])
        self.held[thing] = person, len(self.told)
        self.told.append(rng.choice(TAKE).format(person, thing))

    def _drop(self, rng: random.Random) -> None:
        thing = rng.choice(sorted(self.held))
        self.told.append(rng.choice(DROP).format(self.held.pop(thing)[0], thing))


Asked = tuple[str, str, tuple[int, ...]]
"""A question, its answer, and the sentences that tell it."""


def _person(world: _World, rng: random.Random) -> Asked:
    person = rng.choice(sorted(world.at))
    place, line = world.at[person]
    return f"Where is {person}?", place, (line,)


def _thing(world: _World, rng: random.Random) -> Asked:
    """Two sentences tell it: who carries the thing, and where that person is."""
    thing = rng.choice(sorted(world.held))
    person, taken = world.held[thing]
    place, line = world.at[person]
    return f"Where is the {thing}?", place, (taken, line)


def _yes_no(world: _World, rng: random.Random) -> Asked:
    person = rng.choice(sorted(world.at))
    place, line = world.at[person]
    other = rng.choice([each for each in PLACES if each != place])
    yes = rng.random() < 0.5
    return f"Is {person} in the {place if yes else other}?", "yes" if yes else "no", (line,)


def _count(world: _World, rng: random.Random) -> Asked:
    person = rng.choice(sorted(world.at))
    lines = tuple(line for who, line in world.held.values() if who == person)
    return f"How many things does {person} carry?", NUMBERS[len(lines)], lines


KINDS: dict[str, Callable[[_World, random.Random], Asked]] = {
    "where is a person": _person,
    "where is a thing": _thing,
    "yes or no": _yes_no,
    "how many": _count,
}


def make_errands(count: int, seed: int = 0) -> list[Story]:
    """Return `count` questions, as many of each kind; equal seeds give equal questions."""
    rng, found, wanted = random.Random(seed), list[Story](), 0
    names = list(KINDS)
    while len(found) < count:
        world = _World()
        for _ in range(QUESTIONS):
            for _ in range(rng.randint(*BETWEEN)):
                world.happen(rng)
            kind = names[wanted % len(names)]
            if not world.at or (kind == "where is a thing" and not world.held):
                continue
            wanted += 1
            question, answer, support = KINDS[kind](world, rng)
            found.append(Story(tuple(world.told), question, answer, kind, support, line=len(found) + 1))
    return found[:count]
