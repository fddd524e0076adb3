"""Routes of the page new: what can be trained, a run in three forms, its estimate, its start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headway.api.settings import word
from headway.errors import HeadwayError, NotFoundError
from headway.reference.recipes import recipes
from headway.reference.settings import section
from headway.reference.tasks import task_facts
from headway.report.advice.suggestion import typed_words
from headway.runs.history import read_run
from headway.studio.context import Studio
from headway.studio.jobs import Job
from headway.studio.new.draft import draft, flat_words, from_command, from_toml, placed, with_value
from headway.studio.stream import changes, events, worked
from headway.tasks.recipe import SECTIONS, is_of_new_model
from headway.tasks.registry import get_task, known_task, task_names

STARTED = re.compile(r"^(.+): [\d.]+M parameters", re.MULTILINE)
"""What `headway train` prints when a run begins: its folder, and the size of its model."""
TOML = 1 << 16
Word = Annotated[str, Field(max_length=4096)]


class Named(BaseModel):
    """A recipe and the words on top."""

    model_config = ConfigDict(extra="forbid")
    recipe: Annotated[str, Field(max_length=4096)]
    words: Annotated[list[Word], Field(max_length=400)] = []


class Edit(BaseModel):
    """What somebody has changed: a field, the TOML, or the command line."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["set", "toml", "command"]
    key: Annotated[str, Field(max_length=200)] = ""
    value: Annotated[str, Field(max_length=4096)] | None = None
    before: Annotated[str, Field(max_length=TOML)] = ""
    after: Annotated[str, Field(max_length=TOML)] = ""
    line: Annotated[str, Field(max_length=TOML)] = ""


class Drafted(Named):
    """A draft with an edit, and what was chosen for it by then."""

    chosen: Annotated[dict[str, Any], Field(max_length=200)] = {}
    edit: Edit | None = None


class Rehearsed(Named):
    """What to find out."""

    first: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    measure: bool = True
    large: bool = True


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/new")

    def in_folder(words: list[str]) -> list[str]:
        """Words of a run that begins in the studio's folder, if they name no other."""
        return words if "out" in flat_words(words) else [*words, word("out", studio.runs)]

    @made.get("/cards")
    def cards() -> dict[str, Any]:
        """Every task and every recipe."""
        return {"tasks": [_card(name) for name in task_names()], "recipes": [_recipe(each) for each in recipes()]}

    @made.get("/settings/{task}")
    def settings(task: str) -> list[dict[str, Any]]:
        """The settings of a task by section, with types, defaults, ranges and meanings."""
        get_task(task)
        found = [section(name).to_dict() for name in ("", *SECTIONS, task)]
        return [{**each, "settings": [one for one in each["settings"] if task in one["tasks"]]} for each in found]

    @made.get("/from/{run}")
    def of_run(run: str) -> dict[str, Any]:
        """The recipe and the words of a run; and the words that begin with its weights."""
        recipe, *words = typed_words(read_run(studio.run_folder(run)))
        kept = {key: value for key, value in flat_words(words).items() if not is_of_new_model(key)}
        weights = [*(word(key, value) for key, value in kept.items()), word("model.from", run)]
        return {"recipe": recipe, "words": words, "weights": weights}

    @made.post("/draft")
    def drafted(asked: Drafted) -> dict[str, Any]:
        """A recipe in all forms, after an edit. A mistake comes back as an `error` with its place."""
        recipe, words, toml = asked.recipe, asked.words, ""
        try:
            if (edit := asked.edit) is not None:
                toml = edit.after if edit.kind == "toml" else edit.before
                recipe, words = _edited(recipe, words, edit)
            return draft(recipe, words, asked.chosen, toml)
        except HeadwayError as error:
            return {"recipe": recipe, "words": words, "error": placed(error, words, toml)}

    @made.post("/rehearse")
    def rehearsed(asked: Rehearsed) -> StreamingResponse:
        """What is chosen, what the model will see, memory and time."""
        from headway.studio.new.rehearsal import rehearse  # imports torch

        how = asked.model_dump(include={"first", "measure", "large"})
        return events(worked(lambda tell: rehearse(asked.recipe, in_folder(asked.words), tell, **how)))

    @made.post("/start")
    def start(asked: Named) -> dict[str, Any]:
        """Train. A mistake in the recipe is an error of this request."""
        if error := draft(asked.recipe, asked.words, {}).get("error"):
            return {"error": error}
        return {"job": studio.jobs.start(["train", asked.recipe, *in_folder(asked.words)]).id}

    @made.get("/job/{job}/events")
    def job(job: str) -> StreamingResponse:
        """How a run that was started begins."""
        started = studio.jobs.get(job)
        return events(changes(lambda: _state(studio, started), every=0.3))

    @made.post("/job/{job}/stop")
    def stop(job: str) -> dict[str, bool]:
        studio.jobs.get(job).stop()
        return {"stopped": True}

    return made


def _edited(recipe: str, words: list[str], edit: Edit) -> tuple[str, list[str]]:
    if edit.kind == "command":
        return from_command(edit.line)
    if edit.kind == "toml":
        return recipe, from_toml(recipe, words, edit.before, edit.after)
    return recipe, with_value(recipe, words, edit.key, edit.value)


def _card(name: str) -> dict[str, Any]:
    task, facts = get_task(name), task_facts(name)
    return {
        **{key: getattr(facts, key) for key in ("name", "title", "noun", "doc", "takes", "made_up")},
        "recipe": task.starter or name,
        "learns": task.learns or task.takes,
        "second": task.second,
        "tries": task.tries.made_up.split("   ")[0],
    }


def _recipe(found: Any) -> dict[str, Any]:
    task = known_task(found.task)
    return {
        **{key: getattr(found, key) for key in ("name", "task", "title", "time", "score", "starter")},
        "data": found.facts.get("data", ""),
        "model": found.facts.get("model", ""),
        "task_title": task.title if task else found.task,
    }


def _state(studio: Studio, job: Job) -> dict[str, Any]:
    """The state of a command that trains, with the name of its run as soon as that is there."""
    facts, run, folder = job.to_dict(), "", ""
    if found := STARTED.search(str(facts["output"])):
        folder = found[1]
        try:
            run = studio.run_folder(Path(folder).name).name if Path(folder).parent == studio.runs else ""
        except NotFoundError:  # it has gone again
            run = ""
    return {**facts, "run": run, "folder": folder}
