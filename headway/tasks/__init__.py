"""Tasks by name."""

from __future__ import annotations

from importlib import import_module

from headway.tasks.base import Setting, Task

TASKS = {
    "lm": "headway.tasks.lm:LanguageModelling",
    "chat": "headway.tasks.chat:Chat",
}


def make_task(setting: Setting) -> Task:
    """The task of a recipe, with its data read; only its own module is imported."""
    module, _, name = TASKS[setting.recipe.task].partition(":")
    task: Task = getattr(import_module(module), name).prepare(setting)
    return task
