"""A dataset before training: a survey of it, the task that fits it, and what to do next."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api.tables import frame
from headway.config.recipe import UTF_8
from headway.errors import DataError

if TYPE_CHECKING:
    import pandas

    from headway.data.profile.media import MediaSurvey
    from headway.data.profile.pairs import PairSurvey
    from headway.data.profile.pictures import ImageSurvey
    from headway.data.profile.sounds import SoundSurvey
    from headway.data.profile.survey import Survey
    from headway.tasks.base import Task

MOST_READ = 50_000_000
"""Bytes of the largest dataset that is read a second time, as its task reads it."""


@dataclass(frozen=True, repr=False)
class Profile:
    """What a dataset is, and what it is for: `print(headway.data("reviews.csv"))`."""

    survey: Survey
    task: Task | None
    """The task that fits the data best; None if none does, or if it cannot use a single row."""
    recipe: str
    """The recipe to start from; empty without a task."""
    settings: tuple[str, ...]
    """`key=value` words that training needs to read the data."""
    roles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Column → what the task takes it for, and the setting that names another one, if there is one."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, the same as `headway data --json`."""
        return self.survey.as_dict()

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row for each column: its type, empty cells, an example."""
        return frame([asdict(column) for column in self.survey.columns])

    def __str__(self) -> str:
        return "\n".join(self.survey.lines())

    def __repr__(self) -> str:
        name = "no task" if self.task is None else self.task.name
        return f"Profile({self.survey.spec!r}, {self.survey.rows:,} rows, for {name}, {self.survey.bad:,} bad)"

    def _repr_html_(self) -> str:
        step = next_step(self, all_shown=True)
        return f"<pre>{html.escape(str(self))}{html.escape(f'{chr(10)}{chr(10)}{step}' if step else '')}</pre>"


def profile(
    file: str,
    *,
    column: str = "",
    valid: str = "",
    tokenizer: Path | None = None,
    keep: int = 20,
    encoding: str = UTF_8,
) -> Profile:
    """Survey a dataset and choose its task; `keep` is the number of bad rows to name."""
    from headway.data.files.columns import recorded_columns
    from headway.data.files.lines import read_as
    from headway.data.profile.survey import survey
    from headway.tasks.registry import suggestions

    found = survey(file, column=column, valid=valid or None, tokenizer=tokenizer, keep=keep, encoding=encoding)
    encoded = () if encoding == UTF_8 else (f"data.encoding={encoding}",)
    with read_as(encoding):
        for task, fit in suggestions(found):
            try:
                recipe = fit.recipe or task.starter or task.name
                with recorded_columns() as columns:
                    read = _as_read(found, task, recipe, fit.settings, keep)
            except DataError:  # training could not read it: files with other columns, say
                continue
            usable = not read.task or read.bad < found.rows + found.bad
            if not usable:
                return Profile(read, None, "", (*fit.settings, *encoded))
            roles = {column: (role.name, role.setting) for column, role in columns.items()}
            return Profile(read, task, recipe, (*fit.settings, *encoded), roles)
    return Profile(found, None, "", encoded)


def _as_read(found: Survey, task: Task, recipe: str, settings: Sequence[str], keep: int) -> Survey:
    """The survey with the rows that the task cannot use among the bad ones: rows without a label, say."""
    from headway.config.recipe import DataConfig
    from headway.data.files.rows import BadRows

    if found.bytes > MOST_READ:
        return found
    given: dict[str, Any] = dict(word.removeprefix("data.").split("=", 1) for word in settings)
    bad = BadRows("skip", keep)
    try:
        task.bad_rows(found.spec, DataConfig(**given), bad)
    except DataError as error:
        if error.code != "D002":  # every row is bad: they are counted by then
            raise
    return replace(found, bad=bad.count, bad_lines=tuple(bad.first), task=recipe) if bad.count > found.bad else found


def next_step(profile: Profile, all_shown: bool) -> str:
    """What to do next: train, evaluate on questions, read in another encoding, or look at the bad rows."""
    found, settings = profile.survey, list(profile.settings)
    if found.bad_lines and (guess := re.search(r"not UTF-8.*data\.encoding=([\w-]+)", found.bad_lines[0])):
        return f"next: {shlex.join(['headway', 'data', found.spec, '--encoding', guess[1]])}"
    if found.choices:
        encoded = [word for word in settings if word.startswith("data.encoding=")]
        return f"next: {shlex.join(['headway', 'eval', 'MODEL', found.spec, 'task=choices', *encoded])}"
    if not profile.recipe:
        return f"next: {shlex.join(['headway', 'data', found.spec])} --bad" if found.bad and not all_shown else ""
    words = ["headway", "train", profile.recipe, f"data.train={found.spec}"]
    if found.overlap:
        words.append(f"data.valid={found.overlap.valid}")
    if found.bad:
        settings.append("data.bad_rows=skip")
    return f"next: {shlex.join([*words, *settings])}"


def recipe_of_pairs(found: PairSurvey) -> str:
    """The recipe that learns from two parallel files; empty if none can."""
    from headway.data.datasets.parallel import are_summaries

    if not found.pairs or found.source_lines != found.target_lines:
        return ""
    return "summarize" if are_summaries(found.samples) else "translate"


def next_of_pairs(found: PairSurvey, encoding: str) -> str:
    """What to do next with two parallel files."""
    if not (recipe := recipe_of_pairs(found)):
        return ""
    words = ["headway", "train", recipe, f"data.train={found.spec}"]
    words += [] if encoding == UTF_8 else [f"data.encoding={encoding}"]
    return f"next: {shlex.join([*words, *(['data.bad_rows=skip'] if found.bad else [])])}"


def task_of_images(found: ImageSurvey) -> Task | None:
    """The first task that can learn from images."""
    from headway.data.profile.sounds import holds_sounds
    from headway.tasks.image import LearnsImages
    from headway.tasks.registry import tasks

    labels = len(found.labels) > 1
    sounds = labels and Path(found.spec).is_file() and holds_sounds(found.spec)
    there = {"": found.images > 0, "labels": labels, "captions": found.captions > 0, "sounds": sounds}
    able = [task for task in tasks() if isinstance(task, LearnsImages) and there[task.beside]]
    able.sort(key=lambda task: (task.beside != "sounds", not task.beside))  # what uses all of the data comes first
    return next(iter(able), None)


def next_of_images(found: ImageSurvey, sheet: Path | None) -> str:
    """What to do next with images: train the first task that can learn from them, look at them."""
    look = [["headway", "data", found.spec, "--sheet", "images.html"]] if sheet is None else []
    return _next_of(task_of_images(found), found, look) if found.images else ""


def task_of_sounds(found: SoundSurvey) -> Task | None:
    """The first task that can learn from sounds."""
    from headway.tasks.audio.task import LearnsSounds
    from headway.tasks.registry import tasks

    there = {"labels": len(found.labels) > 1, "texts": found.texts > 0}
    return next((task for task in tasks() if isinstance(task, LearnsSounds) and there[task.beside]), None)


def next_of_sounds(found: SoundSurvey) -> str:
    """What to do next with sounds: train the first task that can learn from them."""
    return _next_of(task_of_sounds(found), found, []) if found.sounds else ""


def _next_of(task: Task | None, found: MediaSurvey, more: list[list[str]]) -> str:
    skip = ["data.bad_rows=skip"] if found.bad else []
    steps = [] if task is None else [["headway", "train", task.starter or task.name, f"data.train={found.spec}", *skip]]
    return "next: " + "   ".join(map(shlex.join, [*steps, *more])) if steps or more else ""
