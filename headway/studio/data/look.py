"""A look at a dataset: its survey, its first rows, and the training that fits it."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from headway.api.dataset import profile, recipe_of_pairs, task_of_images, task_of_sounds
from headway.config.ranges import check_encoding
from headway.config.recipe import UTF_8
from headway.data.datasets.parallel import split_pair_spec
from headway.data.files.lines import open_text, read_as
from headway.data.files.locate import DATASET, file_format, find_files, may_be_hub
from headway.data.files.rows import first_rows
from headway.data.images.decode import Pixels
from headway.data.images.png import png
from headway.data.profile.media import MediaSurvey
from headway.data.profile.pairs import survey_pairs
from headway.data.profile.pictures import SHEET_CLASSES, holds_images, survey_images
from headway.data.profile.scan import split_text
from headway.data.profile.sounds import holds_sounds, survey_sounds
from headway.data.profile.tally import one_line
from headway.errors import NotFoundError, UsageError
from headway.jsonfile import show
from headway.tasks.base import Task
from headway.tasks.recipe import load_recipe
from headway.tasks.registry import get_task

KEPT = 200
"""Bad rows that are named."""
ROWS, CELL, HEAD = 20, 160, 1 << 16
"""First rows that are shown, the letters of a cell, and the bytes of a text file in which they are looked for."""


def look(spec: str, valid: str = "", column: str = "", encoding: str = UTF_8) -> dict[str, Any]:
    """What `headway data` finds, as plain values, with the first rows and the words to train on it."""
    check_encoding("the encoding", encoding)
    check_local(spec)
    if sides := split_pair_spec(spec):
        pairs = survey_pairs(*sides, keep=KEPT, encoding=encoding)
        head = {"columns": ["source", "target"], "rows": [list(map(_cell, sample)) for sample in pairs.samples]}
        step = _step(recipe_of_pairs(pairs), spec, encoding, pairs.bad)
        return {"kind": "pairs", "facts": pairs.as_dict(), **step, "head": head}
    if holds_images(spec):
        images, thumbnails = survey_images(spec, KEPT)
        return {**_media("images", images, task_of_images(images)), "sheet": _sheet(thumbnails)}
    if holds_sounds(spec):
        sounds = survey_sounds(spec, KEPT)
        return _media("sounds", sounds, task_of_sounds(sounds))
    if valid:
        check_local(valid)
    told = profile(spec, column=column, valid=valid, keep=KEPT, encoding=encoding)
    survey, more = told.survey, list(told.settings)
    if told.recipe and survey.overlap:
        more.append(f"data.valid={survey.overlap.valid}")
    return {
        "kind": "rows",
        "facts": {**survey.as_dict(), "columns": [asdict(each) for each in survey.columns]},
        "roles": told.roles,
        **_step(told.recipe, spec, UTF_8, survey.bad, more, told.task),
        "head": _head(spec, encoding),
    }


def check_local(spec: str) -> None:
    """Refuse what would be fetched from the hub without anybody having asked for it."""
    if not spec.strip():
        raise UsageError("U001", "no data are named", "type the path of a file or folder, or drop one")
    there = split_pair_spec(spec) or os.path.exists(os.path.expanduser(spec))
    if not there and may_be_hub(spec) and not spec.startswith("hf://") and DATASET.fullmatch(spec):
        hint = f"give the path from {Path.cwd()}, or for a dataset of the hub, which is then fetched: hf://{spec}"
        raise NotFoundError("F001", f"no such file: {show(spec)[:200]}", hint)


def _media(kind: str, found: MediaSurvey, task: Task | None) -> dict[str, Any]:
    recipe = "" if task is None else task.starter or task.name
    return {"kind": kind, "facts": found.as_dict(), **_step(recipe, found.spec, UTF_8, found.bad, (), task)}


def _step(
    recipe: str, spec: str, encoding: str, bad: int, settings: Sequence[str] = (), task: Task | None = None
) -> dict[str, Any]:
    """The recipe that fits, its task, and the words to train it on these data."""
    if not recipe:
        return {"recipe": "", "task": None, "words": []}
    task = task or get_task(load_recipe(recipe)[1].task)
    words = [f"data.train={spec}", *settings, *(["data.bad_rows=skip"] if bad else [])]
    words += [] if encoding == UTF_8 else [f"data.encoding={encoding}"]
    return {"recipe": recipe, "task": {"name": task.name, "title": task.title, "noun": task.noun}, "words": words}


def _head(spec: str, encoding: str) -> dict[str, Any]:
    """The first rows of a table, or the first paragraphs of a text."""
    path = find_files(spec)[0]
    with read_as(encoding):
        if file_format(path)[0] != "text":
            rows = first_rows(spec)[:ROWS]
            columns = list(dict.fromkeys(name for row in rows for name in row.values))[:ROWS]
            cells = [[_cell(row.values.get(name)) for name in columns] for row in rows]
            return {"columns": columns, "rows": cells, "lines": [row.line for row in rows]}
        with open_text(path) as file:
            text = file.read(HEAD).decode("utf-8", "replace")
    unit, parts = split_text(text)
    some = list(islice(parts, ROWS))
    return {"columns": [unit], "rows": [[_cell(part)] for part, _ in some], "lines": [line for _, line in some]}


def _cell(value: Any) -> str:
    return "" if value is None else one_line(value, CELL)


def _sheet(thumbnails: dict[str, list[Pixels]]) -> list[dict[str, Any]]:
    """A contact sheet: some images of each label, as data URLs."""
    shown = sorted(thumbnails.items())[:SHEET_CLASSES]
    return [{"label": label, "images": [image_url(each.transpose(1, 2, 0)) for each in some]} for label, some in shown]


def image_url(pixels: Pixels) -> str:
    """A picture (height, width) or (height, width, 3) as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"
