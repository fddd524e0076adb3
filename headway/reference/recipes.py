"""The recipes that `headway train` knows by name, with what their head comments say of them. No torch here."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from headway.tasks.recipe import RECIPES, STARTER, recipe_names
from headway.tasks.registry import BUILT_IN, get_task

FACT = re.compile(r"([a-z]+): +(.*)")
TIME = re.compile(r"(?<![\d.,])[\d.,]+ (?:s|min|h),? (?:for [\d,]+ steps )?on (?:an?|one|two|four) [^;,()]*\b")
"""A time inside a longer text: "6 s on an H200"."""


@dataclass(frozen=True)
class RecipeFacts:
    """A recipe as its file describes it."""

    name: str
    task: str
    title: str
    commands: tuple[str, ...]
    """Commands to type."""
    facts: dict[str, str]
    """data, model, time, score …, as the head comment has them."""
    values: dict[str, Any]
    """Its settings, nested as in the file."""
    starter: bool
    """Whether it is to start from: for data of the user other settings are chosen."""

    @property
    def time(self) -> str:
        """How long it takes, and where: "6 s on an H200"; empty if the file does not say it."""
        told = self.facts.get("time", "")
        found = TIME.search(told or self.score)
        return found[0] if found else told

    @property
    def score(self) -> str:
        return self.facts.get("score", "")

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "time": self.time, "score": self.score}


def recipes() -> list[RecipeFacts]:
    """Every recipe, by name."""
    return [recipe(name) for name in recipe_names()]


def recipe(name: str) -> RecipeFacts:
    """One recipe of `recipe_names`; that of a task of another package may have no head comment."""
    own = RECIPES / f"{name}.toml"
    text = get_task(name).recipe if name not in BUILT_IN and not own.exists() else own.read_text(encoding="utf-8")
    values = tomllib.loads(text)
    title, commands, facts = head_comment(text)
    task = str(values.get("task", "lm"))
    commands = commands or (f"headway train {name}",)
    starter = values.pop(STARTER, not own.exists()) is True
    return RecipeFacts(name, task, title or f"{get_task(task).title}.", commands, facts, values, starter)


def head_comment(text: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """The title, the commands and the facts (`score: …`) of the comment that a recipe begins with."""
    title, commands, facts, last = "", list[str](), dict[str, str](), ""
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        body = line.removeprefix("#").strip()
        if not body:
            last = ""
        elif not title:
            title = body
        elif found := FACT.fullmatch(body):
            last, facts[found[1]] = found[1], found[2]
        elif last:
            facts[last] += f" {body}"
        elif commands and commands[-1].endswith("\\"):
            commands[-1] = f"{commands[-1].removesuffix(chr(92)).rstrip()} {body}"
        else:
            commands.append(body)
    return title, tuple(commands), facts
