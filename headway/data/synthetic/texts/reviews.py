"""Synthetic film reviews, positive and negative, from a small grammar.

No single word gives the label away: a negation inverts a verdict, and the opinions of other people do not count.
"""

from __future__ import annotations

import random

from headway.data.datasets.labeled import LabeledText

GOOD = ("wonderful", "moving", "clever", "funny", "gripping", "beautiful", "warm", "brilliant", "charming", "fresh")
BAD = ("dull", "clumsy", "tedious", "bland", "shallow", "noisy", "empty", "lifeless", "awkward", "stale")
THINGS = ("film", "plot", "story", "cast", "script", "ending", "dialogue", "music", "camera work", "first half")
OTHERS = ("my brother", "the critic next to me", "everybody else", "the poster", "an old friend", "the press")
WAYS = ("really", "quite", "truly", "simply", "rather", "")
ASIDES = (
    "it runs for two hours", "we sat in the third row", "it was raining outside", "the seats were new",
    "i saw it on a monday", "it is based on a novel", "there was a queue at the door", "the hall was half full",
)  # fmt: skip


def make_reviews(count: int, seed: int = 0) -> list[LabeledText]:
    """Return `count` reviews, half of them positive; equal seeds give equal reviews."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        good = number % 2 == 0
        parts = [_verdict(rng, good), *(_distraction(rng) for _ in range(rng.randint(0, 2)))]
        rng.shuffle(parts)
        label = "positive" if good else "negative"
        rows.append(LabeledText(" , ".join(parts) + " .", None, label, "", number + 1))
    return rows


def _verdict(rng: random.Random, good: bool) -> str:
    negated = rng.random() < 0.4
    word = rng.choice(GOOD if good != negated else BAD)
    way = rng.choice(WAYS)
    thing = rng.choice(THINGS)
    middle = f"was not {way}" if negated else f"was {way}"
    return " ".join(f"i thought the {thing} {middle} {word}".split())


def _distraction(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(ASIDES)
    word = rng.choice(GOOD + BAD)
    return f"{rng.choice(OTHERS)} called the {rng.choice(THINGS)} {rng.choice(('', 'not '))}{word}"
