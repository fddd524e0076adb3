"""How good answers are: the error of each task, their mean, tasks that failed; and hops drawn over stories."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from headway.data.batching.permutation import Index
from headway.data.datasets.stories import Story
from headway.tasks.classification.evaluate import ClassificationResults
from headway.tasks.classification.evaluate import evaluation as classified
from headway.tasks.memory.data import Part
from headway.tasks.memory.predict import Read
from headway.tasks.metrics.bootstrap import Evaluation, interval
from headway.tasks.metrics.classification import Numbers
from headway.tasks.metrics.slices import by_kind

FAILED = 0.05
"""A task with a larger error has failed (Weston et al. 2015)."""
ROW, CELL, LETTER = 20, 46, 7
"""Sizes in a drawing of hops, in pixels: the height of a sentence, the width of a weight, the width of a letter."""


def right(logits: Numbers, truth: Index) -> Numbers:
    """(B,) 1 for each right answer. An answer that training did not have is never right."""
    return np.asarray(logits.argmax(1) == truth, dtype=np.float64)


def metrics_of(good: Numbers, kinds: Sequence[str]) -> dict[str, float]:
    """The mean of the tasks' errors, the number of tasks that failed, and the accuracy over all questions."""
    numbers = np.unique(kinds, return_inverse=True)[1]
    return _metrics(good, numbers, int(numbers.max()) + 1)


def _metrics(good: Numbers, kinds: Index, count: int) -> dict[str, float]:
    many = np.bincount(kinds, minlength=count)
    errors = 1 - np.bincount(kinds, good, minlength=count)[many > 0] / many[many > 0]
    return {"error": float(errors.mean()), "failed": float((errors > FAILED).sum()), "accuracy": float(good.mean())}


def evaluate_part(part: Part, read: Read, labels: tuple[str, ...], bad: int, shown: Sequence[int]) -> Evaluation:
    """All there is to say of answers; `shown` are the questions whose hops are drawn."""
    good = right(read.logits, part.truth)
    numbers = np.unique(part.kinds, return_inverse=True)[1]
    count = int(numbers.max()) + 1
    figures = {
        name: interval(lambda rows, name=name: _metrics(good[rows], numbers[rows], count)[name], len(good))  # type: ignore[misc]
        for name in _metrics(good, numbers, count)
    }
    known = part.truth >= 0
    details: dict[str, Any] = {"bad_rows": bad}
    if known.any():
        rows = [story for story, own in zip(part.stories, known, strict=True) if own]
        results = ClassificationResults("single", labels, part.truth[known].astype(np.float64), read.logits[known])
        details |= classified(results, rows, None, {}).details
    tables = by_kind(part.kinds, lambda rows: {"error": 1 - float(good[rows].mean())})
    details["by_task"] = sorted(tables, key=lambda row: _natural(row["kind"]))
    details["unseen_answers"] = int((~known).sum())
    if read.hops and len(read.hops[0]):
        details["pictures"] = [_picture(part.stories[i], read.hops[i], read.logits[i], labels) for i in shown]
        details["pictures_title"] = "where the hops looked, one column for each"
    each = [
        {"file": story.file, "line": story.line, "label": story.label, "predicted": labels[int(own.argmax())]}
        for story, own in zip(part.stories, read.logits, strict=True)
    ]
    return Evaluation(len(part), figures, details, each)


def _natural(name: str) -> list[Any]:
    """A key by which task 2 comes before task 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def one_of_each(part: Part) -> list[int]:
    """The first question of each task that has several sentences to look at."""
    found: dict[str, int] = {}
    for place, story in enumerate(part.stories):
        if len(story.told) > 2:
            found.setdefault(story.kind, place)
    return list(found.values())


def _picture(story: Story, hops: Numbers, logits: Numbers, labels: Sequence[str]) -> dict[str, str]:
    """A story with a column for each hop, as the `pictures` of an evaluation have it."""
    told = story.told[len(story.told) - hops.shape[1] :]
    left = LETTER * max(map(len, told)) + 8
    size = f"{left + CELL * len(hops) + 8}", f"{ROW * (len(told) + 1) + 8}"
    parts = ['<rect width="100%" height="100%" fill="white"/>']
    parts += [f'<text x="{left + CELL * i + 4}" y="14">hop {i + 1}</text>' for i in range(len(hops))]
    for row, text in enumerate(told, start=1):
        y = ROW * row
        parts.append(f'<text x="4" y="{y + 14}">{escape(text)}</text>')
        for i, weight in enumerate(hops[:, row - 1]):
            share = min(max(float(weight), 0.0), 1.0)
            x, colour = left + CELL * i, "white" if share > 0.5 else "#27588c"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{ROW - 2}" fill="#27588c" opacity="{share:.2f}"/>'
            )
            parts.append(f'<text x="{x + 6}" y="{y + 14}" style="fill:{colour}">{weight:.0%}</text>')
    box = f'width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}"'
    style = 'font-family="monospace" font-size="11" fill="#27588c"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {box}><g {style}>{"".join(parts)}</g></svg>'
    said = labels[int(logits.argmax())]
    truth = "" if said == story.label else f", in truth {story.label}"
    url = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return {"png": url, "text": f"{story.question} {said}{truth}"}
