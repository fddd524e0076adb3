"""Tasks by name."""

from __future__ import annotations

from importlib import import_module

from headway.config.baselines import AnyConfig
from headway.tasks.base import Task, TaskContext

TASKS = {
    "lm": "headway.tasks.lm.task:LanguageModeling",
    "chat": "headway.tasks.chat.task:Chat",
    "mlm": "headway.tasks.masked_lm.task:MaskedLM",
    "classify": "headway.tasks.classification.task:Classification",
    "tag": "headway.tasks.tagging.task:Tagging",
    "answer": "headway.tasks.qa.task:QuestionAnswering",
    "embed": "headway.tasks.embedding.task:Embedding",
    "seq2seq": "headway.tasks.seq2seq.task:Seq2Seq",
}


def make_task(context: TaskContext) -> Task:
    """The task of a recipe, with its data read."""
    task: Task = task_class(context.recipe.task).prepare(context)  # type: ignore[attr-defined]
    return task


def task_class(name: str) -> type[Task]:
    """A task by name; only its own module is imported."""
    module, _, inside = TASKS[name].partition(":")
    found: type[Task] = getattr(import_module(module), inside)
    return found


def task_of(config: AnyConfig) -> str:
    """What a model is for, by the heads it has; for one that no recipe tells about."""
    pooled = config.classify if config.classify and config.classify.labels else None  # without labels, a bare pooler
    heads = {"classify": pooled, "tag": config.tag, "answer": config.span, "mlm": config.lm}
    if config.kind == "encoder-decoder" and config.lm is not None:
        return "seq2seq"
    found = next((name for name, head in heads.items() if head is not None), "embed")
    return "lm" if config.kind == "decoder" and found in ("mlm", "embed") else found
