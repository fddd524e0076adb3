"""Short training runs, each with something wrong, and made-up data for them."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headway.errors import DivergedError
from headway.runs.history import History, read_run
from headway.tasks.recipe import load_recipe
from headway.train.run import start, train

SMALL = (
    "model.depth=1",
    "model.dropout=0",
    "model.width=16",
    "model.heads=1",
    "train.warmup=2",
    "train.sample_every=100000",
)
LM = (
    *(*SMALL, "data.train=text.txt", "data.tokenizer=chars", "data.vocab=0", "data.length=16"),
    *("train.batch=8", "train.schedule=constant"),
)
CLASSIFY = (*SMALL, "data.length=16", "data.vocab=120", "train.batch=16", "data.train=rows.csv")
WORDS = ("bark", "cedar", "dune", "ember", "fjord", "grove", "heath", "inlet", "knoll", "lagoon", "mesa", "oasis")

Trained = Callable[..., History]


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trained]:
    """A function that trains a recipe with settings, as the command line does, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def make(recipe: str, *settings: str, interrupted: bool = False) -> History:
        run = start(*load_recipe(recipe, settings), [recipe, *settings])
        run.loop.received_signal = signal.SIGTERM if interrupted else 0
        with suppress(DivergedError):
            train(run, lambda kind, **facts: None)
        return read_run(run.folder)

    yield make


def write_rows(rows: Iterable[tuple[str, str]], path: str = "rows.csv") -> None:
    Path(path).write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")


def sentence(dice: random.Random, size: int = 5) -> str:
    return " ".join(dice.choices(WORDS, k=size))


def random_rows(count: int, share: float) -> list[tuple[str, str]]:
    """Texts that have nothing to do with their labels; `share` of these are `no`."""
    dice = random.Random(0)
    return [(sentence(dice), "no" if dice.random() < share else "yes") for _ in range(count)]


def easy_rows(count: int, size: int = 5) -> list[tuple[str, str]]:
    """The first word tells the label."""
    dice = random.Random(0)
    kinds = dice.choices([("good", "yes"), ("bad", "no")], k=count)
    return [(f"{word} {sentence(dice, size)}", label) for word, label in kinds]


def write_text(letters: str, path: str = "text.txt") -> None:
    Path(path).write_text(letters, encoding="utf-8")


def predictable_text(count: int) -> str:
    """Words in an order that can be learned."""
    return (" ".join(WORDS) + " ") * (count // 80)


def syllables(count: int) -> str:
    """Consonants and vowels in turn, which can be learned; which ones they are can only be learned by heart."""
    dice = random.Random(0)
    return "".join(dice.choice("bdfgklmnprst") + dice.choice("aeiou") for _ in range(count // 2))
