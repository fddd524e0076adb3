"""Synthetic reports of small-town events and their one-sentence summaries, from a small grammar.

A summary says what happened, where and when in other words; the report hides these among sentences that do not matter.
"""

from __future__ import annotations

import random

TOWNS = ("Halmar", "Brafen", "Gorven", "Kilun", "Marnes", "Pelri", "Satol", "Ulven", "Dofen", "Orsal")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
EVENTS = {
    "the fire brigade had to save {} from the flames": "{} burned",
    "thieves broke into {} and left through a window": "{} was robbed",
    "the mayor cut a ribbon and {} welcomed its first guests": "{} opened",
    "the owner locked the door of {} for the last time": "{} closed",
    "after the long rain {} stood knee-deep in water": "{} was flooded",
    "a merchant from the coast signed the papers and paid for {}": "{} was sold",
}
"""What a report tells of a place → what its summary says."""
PLACES = (
    *("the old mill", "the bakery", "the town hall", "the railway station", "the library"),
    *("the harbour inn", "the glass works", "the cinema", "the village school", "the flower market"),
)
ASIDES = (
    "Nobody was hurt.", "Many people watched from the street.", "The weather was mild for the season.",
    "A neighbour brought tea and bread.", "The church bells rang at noon.", "The police asked a few questions.",
    "Two children lost their hats.", "The road was closed for an hour.", "A dog barked all evening.",
    "The newspaper sent a photographer.",
)  # fmt: skip


def make_reports(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `count` reports with their summaries; equal seeds give equal reports."""
    rng = random.Random(seed)
    return [_report(rng) for _ in range(count)]


def _report(rng: random.Random) -> tuple[str, str]:
    town, other = rng.sample(TOWNS, 2)
    told, summary = rng.choice(list(EVENTS.items()))
    place, day = rng.choice(PLACES), rng.choice(DAYS)
    asides = rng.sample(ASIDES, 3)
    asides[rng.randrange(3)] = f"In {other} all was quiet."
    sentences = [f"It was {day} when people in {town} came out of their houses.", f"There {told.format(place)}."]
    for aside in asides:
        sentences.insert(rng.choice((0, len(sentences))), aside)
    said = f"{summary.format(place)} in {town} on {day}."
    return " ".join(sentences), said[0].upper() + said[1:]
