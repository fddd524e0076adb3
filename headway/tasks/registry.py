"""The registry: the only list of tasks. Packages of others join it through the entry-point group `headway.tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from headway.config.networks.kinds import AnyConfig
from headway.data.files.rows import first_rows
from headway.errors import ConfigError, nearest
from headway.tasks.base import Suitability, Task

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey

GROUP = "headway.tasks"
BUILT_IN = {
    "seq2seq": "headway.tasks.seq2seq.task:Seq2Seq",
    "classify": "headway.tasks.classification.task:Classification",
    "tag": "headway.tasks.tagging.task:Tagging",
    "answer": "headway.tasks.qa.task:QuestionAnswering",
    "mlm": "headway.tasks.masked_lm.task:MaskedLM",
    "lm": "headway.tasks.lm.task:LanguageModeling",
    "chat": "headway.tasks.chat.task:Chat",
    "images": "headway.tasks.image_classification.task:ImageClassification",
    "diffusion": "headway.tasks.diffusion.task:Diffusion",
    "dino": "headway.tasks.dino.task:Dino",
    "caption": "headway.tasks.caption.task:Caption",
    "audio_classification": "headway.tasks.audio_classification.task:AudioClassification",
    "fusion": "headway.tasks.fusion.task:Fusion",
    "embed": "headway.tasks.embedding.task:Embedding",
    "contrastive": "headway.tasks.contrastive.task:Contrastive",
    "transcribe": "headway.tasks.transcribe.task:Transcribe",
    "forecast": "headway.tasks.forecast.task:Forecasting",
    "dynamics": "headway.tasks.dynamics.task:Dynamics",
    "graph": "headway.tasks.graph.task:GraphTask",
    "word2vec": "headway.tasks.word2vec.task:WordVectorsTask",
    "memory": "headway.tasks.memory.task:Memory",
}
"""In this order a model without a recipe is asked what it can do: the first task that fits is what it is for."""


@cache
def _found() -> dict[str, str]:
    """Task name → "module:Class". A name of ours cannot be taken."""
    others = {point.name: point.value for point in entry_points(group=GROUP)}
    return {**others, **BUILT_IN}


def task_names() -> list[str]:
    """All tasks; none of their modules is imported."""
    return list(_found())


@cache
def get_task(name: str) -> Task:
    """A task by name; only its own module is imported."""
    if name not in _found():
        listed = ", ".join(task_names())
        hint = f"there are: {listed}; a task of another package needs that package installed"
        raise ConfigError("C003", f"task = {name!r} is not known{nearest(name, task_names())}", hint)
    module, _, inside = _found()[name].partition(":")
    task: Task = getattr(import_module(module), inside)()
    return task


def known_task(name: str) -> Task | None:
    """A task by a name that a file gives; None for a task of another version, or of a package that is not there."""
    return get_task(name) if name in _found() else None


def tasks() -> Iterator[Task]:
    """Every task."""
    return (get_task(name) for name in task_names())


def fitting(config: AnyConfig, special: Iterable[str] | None = None) -> list[Task]:
    """The tasks that a model can do, by its heads; the first is what it is for."""
    special = None if special is None else tuple(special)
    return [task for task in tasks() if task.fits(config, special)]


def suggestions(survey: Survey) -> list[tuple[Task, Suitability]]:
    """The tasks that a file may be for, the likeliest first."""
    rows = first_rows(survey.spec)
    found = [(task, task.suits(survey, rows)) for task in tasks()]
    return sorted((each for each in found if each[1].confidence > 0), key=lambda each: -each[1].confidence)
