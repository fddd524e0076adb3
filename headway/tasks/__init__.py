"""Tasks by name."""

from __future__ import annotations

from importlib import import_module

from headway.config import ModelConfig
from headway.tasks.base import Setting, Task

TASKS = {
    "lm": "headway.tasks.lm:LanguageModelling",
    "chat": "headway.tasks.chat:Chat",
    "mlm": "headway.tasks.mlm:MaskedWords",
    "classify": "headway.tasks.classify:Classify",
    "tag": "headway.tasks.tag:Tag",
    "answer": "headway.tasks.answer:Answer",
    "embed": "headway.tasks.embed:Embed",
}


def make_task(setting: Setting) -> Task:
    """The task of a recipe, with its data read; only its own module is imported."""
    module, _, name = TASKS[setting.recipe.task].partition(":")
    task: Task = getattr(import_module(module), name).prepare(setting)
    return task


def task_of(config: ModelConfig) -> str:
    """What a model is for, by the heads it has; for one that no recipe tells about."""
    if config.kind == "decoder":
        return "lm"
    heads = {"classify": config.classify, "tag": config.tag, "answer": config.span, "mlm": config.lm}
    return next((name for name, head in heads.items() if head is not None), "embed")
