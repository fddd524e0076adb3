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
    dice = random.Random(seed)
    for _ in range(count):
        turns = [turn for _ in range(dice.randint(1, TURNS)) for turn in dice.choice(QUESTIONS)(dice, held_out)]
        yield [
            {"role": role, "content": text}
            for turn in turns[:TURNS]
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]


def is_held_out(thing: str) -> bool:
    """Whether a word, a name, a sum or a number is only for held-out questions; a hash decides, whatever the seed."""
    return zlib.crc32(thing.encode()) % 10 == 0


def _word(dice: random.Random, held_out: bool) -> str:
    """Three or four letters that can be pronounced."""
    while True:
        letters = [dice.choice(VOWELS if place % 2 else CONSONANTS) for place in range(dice.randint(3, 4))]
        if is_held_out(word := "".join(letters)) == held_out:
            return word


def _numbers(dice: random.Random, held_out: bool, *below: int) -> list[int]:
    while True:
        drawn = [dice.randrange(limit) for limit in below]
        if is_held_out(" ".join(map(str, drawn))) == held_out:
            return drawn


def _backwards(dice: random.Random, held_out: bool) -> list[Turn]:
    word = _word(dice, held_out)
    question = dice.choice(("Spell {} backwards.", "What is {} backwards?", "Please reverse {}."))
    return [(question.format(word), word[::-1])]


def _letters(dice: random.Random, held_out: bool) -> list[Turn]:
    word = _word(dice, held_out)
    question = dice.choice(("How many letters are in {}?", "How long is {}?"))
    return [(question.format(word), f"{len(word)} letters")]


def _end(dice: random.Random, held_out: bool) -> list[Turn]:
    word = _word(dice, held_out)
    which, letter = dice.choice((("first", word[0]), ("last", word[-1])))
    question = dice.choice(("What is the {} letter of {}?", "Which letter is {} in {}?"))
    return [(question.format(which, word), letter)]


def _twice(dice: random.Random, held_out: bool) -> list[Turn]:
    word = _word(dice, held_out)
    return [(dice.choice(("Say {} twice.", "Please repeat {}.")).format(word), f"{word} {word}")]


def _next(dice: random.Random, held_out: bool) -> list[Turn]:
    (number,) = _numbers(dice, held_out, 100)
    question = dice.choice(("What comes after {}?", "Which number follows {}?"))
    return [(question.format(number), str(number + 1))]


def _sum(dice: random.Random, held_out: bool) -> list[Turn]:
    first, second = _numbers(dice, held_out, 10, 10)
    question = dice.choice(("What is {} plus {}?", "{} + {} = ?"))
    return [(question.format(first, second), str(first + second))]


def _name(dice: random.Random, held_out: bool) -> list[Turn]:
    """Two turns, sometimes with another between them: the answer is in an earlier turn."""
    name = _word(dice, held_out).capitalize()
    told = dice.choice(("Hello, I am {}.", "My name is {}.")).format(name), f"Hello, {name}!"
    between = _end(dice, held_out) if dice.random() < 0.5 else []
    return [told, *between, (dice.choice(("What is my name?", "Who am I?")), f"You are {name}.")]


QUESTIONS: tuple[Callable[[random.Random, bool], list[Turn]], ...] = (
    *(_backwards, _letters, _end, _twice, _next, _sum, _name),
)
