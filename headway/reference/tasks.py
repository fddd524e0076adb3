"""The tasks as data: what each is for, what to type, its recipes and its settings. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.reference.recipes import recipes
from headway.reference.settings import section
from headway.tasks.registry import get_task


@dataclass(frozen=True)
class TaskFacts:
    """A task."""

    name: str
    title: str
    noun: str
    """What training gives: "tagger"."""
    doc: str
    takes: str
    """The kind of input: text, image …"""
    made_up: str
    """What it learns from where no data are named."""
    commands: tuple[str, ...]
    """Commands to type, first of all."""
    recipes: tuple[str, ...]
    settings: tuple[str, ...]
    """Keys of its section."""
    pipeline_tag: str
    """The name that the model hub has for it."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def task_facts(name: str) -> TaskFacts:
    """A task by name."""
    task = get_task(name)
    starter = task.starter or name
    return TaskFacts(
        name,
        task.title,
        task.noun,
        (type(task).__doc__ or "").strip().split("\n")[0],
        task.takes,
        task.made_up,
        (f"headway train {starter}", f"headway run last {task.tries.made_up.split('   ')[0]}"),
        tuple(each.name for each in recipes() if each.task == name),
        tuple(each.key for each in section(name).settings),
        task.pipeline_tag,
    )
