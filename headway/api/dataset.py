"""A dataset before training: a survey of it, the task that fits it, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey
    from headway.tasks.base import Task

MOST_READ = 200_000_000
"""Bytes of the largest dataset that is read a second time, as its task reads it."""


@dataclass(frozen=True)
class Profile:
    """What a dataset is, and what it is for."""

    survey: Survey
    task: Task | None
    """The task that fits the data best; None if none does, or if it cannot use a single row."""
    settings: tuple[str, ...]
    """`key=value` words that training needs to read the data."""


def profile(file: str, *, column: str, valid: str, tokenizer: Path | None, keep: int) -> Profile:
    """Survey a dataset and choose its task; `keep` is the number of bad rows to name."""
    from headway.data.profile.survey import survey
    from headway.tasks.registry import suggest

    found = survey(file, column=column, valid=valid or None, tokenizer=tokenizer, keep=keep)
    task, fit = suggest(found)
    rows = found.rows + found.bad
    found = _as_read(found, task, fit.settings, keep)
    return Profile(found, None if found.task and found.bad >= rows else task, fit.settings)


def _as_read(found: Survey, task: Task | None, settings: Sequence[str], keep: int) -> Survey:
    """The survey with the rows that the task cannot use among the bad ones: rows without a label, say."""
    from headway.config.recipe import DataConfig
    from headway.data.files.rows import BadRows

    if task is None or found.bytes > MOST_READ:
        return found
    given: dict[str, Any] = dict(word.removeprefix("data.").split("=", 1) for word in settings)
    bad = BadRows("skip", keep)
    task.bad_rows(found.spec, DataConfig(**given), bad)
    name = task.starter or task.name
    return replace(found, bad=bad.count, bad_lines=tuple(bad.first), task=name) if bad.count > found.bad else found


def next_step(profile: Profile, all_shown: bool) -> str:
    """What to do next: train, or look at the bad rows."""
    from headway.data.files.lines import recode_hint

    found, task, settings = profile.survey, profile.task, list(profile.settings)
    if task is None:
        if any("not UTF-8" in line for line in found.bad_lines[:1]):
            return recode_hint()
        more = " --column NAME" if not found.bad else "" if all_shown else " --bad"
        return f"next: {shlex.join(['headway', 'data', found.spec])}{more}" if more else ""
    words = ["headway", "train", task.starter or task.name, f"data.train={found.spec}"]
    if found.overlap:
        words.append(f"data.valid={found.overlap.valid}")
    if found.bad:
        settings.append("data.bad_rows=skip")
    return f"next: {shlex.join([*words, *settings])}"
