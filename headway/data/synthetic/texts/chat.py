"""Synthetic conversations: questions about words and numbers from a small grammar, with their answers.

A small model can learn to answer them on any machine. A tenth of all words, names, sums and numbers appears only in
held-out questions, so memorized answers do not help.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator

Turn = tuple[str, str]
"""A question and its answer."""

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
TURNS = 4
"""The most questions in a conversation."""


def make_conversations(count: int, seed: int, *, held_out: bool = False) -> Iterator[list[dict[str, str]]]:
    """Yield `count` conversations as lists of messages; equal seeds give equal conversations."""
    rng = random.Random(seed)
    for _ in range(count):
        turns = [turn for _ in range(rng.randint(1, TURNS)) for turn in rng.choice(QUESTIONS)(rng, held_out)]
        yield [
            {"role": role, "content": text}
            for turn in turns[:TURNS]
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]


def is_held_out(thing: str) -> bool:
    """Whether a word, a name, a sum or a number is only for held-out questions; a hash decides, whatever the seed."""
    return zlib.crc32(thing.encode()) % 10 == 0


def _word(rng: random.Random, held_out: bool) -> str:
    """Three or four letters that can be pronounced."""
    while True:
        letters = [rng.choice(VOWELS if place % 2 else CONSONANTS) for place in range(rng.randint(3, 4))]
        if is_held_out(word := "".join(letters)) == held_out:
            return word


def _numbers(rng: random.Random, held_out: bool, *below: int) -> list[int]:
    while True:
        drawn = [rng.randrange(limit) for limit in below]
        if is_held_out(" ".join(map(str, drawn))) == held_out:
            return drawn


def _backwards(rng: random.Random, held_out: bool) -> list[Turn]:
    word = _word(rng, held_out)
    question = rng.choice(("Spell {} backwards.", "What is {} backwards?", "Please reverse {}."))
    return [(question.format(word), word[::-1])]


def _letters(rng: random.Random, held_out: bool) -> list[Turn]:
    word = _word(rng, held_out)
    question = rng.choice(("How many letters are in {}?", "How long is {}?"))
    return [(question.format(word), f"{len(word)} letters")]


def _end(rng: random.Random, held_out: bool) -> list[Turn]:
    word = _word(rng, held_out)
    which, letter = rng.choice((("first", word[0]), ("last", word[-1])))
    question = rng.choice(("What is the {} letter of {}?", "Which letter is {} in {}?"))
    return [(question.format(which, word), letter)]


def _twice(rng: random.Random, held_out: bool) -> list[Turn]:
    word = _word(rng, held_out)
    return [(rng.choice(("Say {} twice.", "Please repeat {}.")).format(word), f"{word} {word}")]


def _next(rng: random.Random, held_out: bool) -> list[Turn]:
    (number,) = _numbers(rng, held_out, 100)
    question = rng.choice(("What comes after {}?", "Which number follows {}?"))
    return [(question.format(number), str(number + 1))]


def _sum(rng: random.Random, held_out: bool) -> list[Turn]:
    first, second = _numbers(rng, held_out, 10, 10)
    question = rng.choice(("What is {} plus {}?", "{} + {} = ?"))
    return [(question.format(first, second), str(first + second))]


def _name(rng: random.Random, held_out: bool) -> list[Turn]:
    """Two turns, sometimes with another between them: the answer is in an earlier turn."""
    name = _word(rng, held_out).capitalize()
    told = rng.choice(("Hello, I am {}.", "My name is {}.")).format(name), f"Hello, {name}!"
    between = _end(rng, held_out) if rng.random() < 0.5 else []
    return [told, *between, (rng.choice(("What is my name?", "Who am I?")), f"You are {name}.")]


QUESTIONS: tuple[Callable[[random.Random, bool], list[Turn]], ...] = (
    *(_backwards, _letters, _end, _twice, _next, _sum, _name),
)
