"""A suggestion, and its command: the run's own words with some settings changed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from headway.config.aliases import ALIASES
from headway.runs.history import History

BUDGETS = ("train.steps", "train.minutes", "train.epochs")
"""A run has one of them: a new one replaces the others."""

Changes = Mapping[str, str | int | float | bool]
"""Settings by their dotted keys."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Something to try, and why."""

    name: str = ""
    """The name of the rule."""
    advice: str
    """What to change."""
    reason: str
    """The numbers that say so."""
    command: str = ""
    """A complete command that makes the change."""
    verdict: str = ""
    """What is wrong with the result, for the report's verdict: "it learned nothing". Empty if the result is good."""

    @property
    def lines(self) -> list[str]:
        """What was noticed, what to change, and how, for a terminal."""
        return [line for line in (self.reason, self.advice, self.command) if line]


def typed_words(run: History) -> list[str]:
    """The recipe and the settings that the run was started and resumed with; without a record, its own recipe file."""
    started = run.last_event("start").get("words")
    resumed = [event.get("words") for event in run.events_of("restart")]
    lists = [words for words in (started, *resumed) if isinstance(words, list)]
    if not started or not all(isinstance(word, str) for words in lists for word in words):
        return [str(run.folder / "run" / "recipe.toml")]
    return [word for words in lists for word in words]


def train_command(run: History, changes: Changes) -> str:
    """`headway train` with the words of the run, and these settings in the place of their old values."""
    recipe, *settings = typed_words(run)
    replaced = {*changes, *(BUDGETS if any(key in BUDGETS for key in changes) else ())}
    latest = {_key(word): word for word in settings if _key(word) not in replaced}
    return headway_command("train", recipe, *latest.values(), *(f"{k}={_value(v)}" for k, v in changes.items()))


def data_command(run: History) -> str:
    """`headway data` on the training data; empty if the data are made up."""
    typed = (word.partition("=")[2] for word in typed_words(run) if _key(word) == "data.train")
    source = next(typed, "") or str(run.setting("data.train") or "")
    return headway_command("data", source) if source else ""


def headway_command(*words: str) -> str:
    """A command line that a shell reads as these words."""
    return shlex.join(["headway", *words])


def resume_command(run: History) -> str:
    return headway_command("train", "--resume", str(run.folder))


def _key(word: str) -> str:
    key = word.partition("=")[0].strip()
    return ALIASES.get(key, key)


def _value(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
