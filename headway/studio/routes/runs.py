"""Routes of the page of runs: the list, live; stop, resume, delete, have back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from headway.errors import ConfigError
from headway.hub.run_names import is_running
from headway.jsonfile import show
from headway.runs.process import stop_trainer
from headway.runs.trash import discard, empty, restore
from headway.studio.context import Studio
from headway.studio.runs.table import Row, RunTable
from headway.studio.stream import changes, events

Name = Annotated[str, Field(min_length=1, max_length=500)]
MOST_STEPS = 10**9


class Named(BaseModel, extra="forbid"):
    """A run by its name."""

    name: Name


class Resumed(BaseModel, extra="forbid"):
    """A run to train further, perhaps to another number of steps."""

    name: Name
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None


class Ticket(BaseModel, extra="forbid"):
    """What was given for a deleted run."""

    ticket: Annotated[str, Field(max_length=32)]


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/runs")
    table = RunTable(studio.runs, studio.histories)
    empty(studio.runs, age=0)

    def look() -> dict[str, Row]:
        rows, starting = table.rows(), _starting(studio)
        return {name: {**row, "starting": name in starting} for name, row in rows.items()}

    @made.get("")
    def listed() -> dict[str, Any]:
        """The numbers of all runs, newest first."""
        empty(studio.runs)
        return {"folder": str(studio.runs), "runs": list(look().values())}

    @made.get("/events")
    def live() -> StreamingResponse:
        """All rows, then those that change; null for a run that is gone."""
        return events(_differences(studio, changes(look, every=0.5)))

    @made.post("/stop")
    def stop(asked: Named) -> dict[str, Any]:
        """Ask a run to save and end."""
        stop_trainer(studio.run_folder(asked.name))
        return {}

    @made.post("/resume")
    def resume(asked: Resumed) -> dict[str, Any]:
        """Train a run further, in a process of its own. Returns the id of the command."""
        folder = studio.run_folder(asked.name)
        if is_running(folder) or asked.name in _starting(studio):
            raise ConfigError("C030", f"{show(asked.name)} is training already")
        words = [] if asked.steps is None else [f"train.steps={asked.steps}"]
        return {"job": studio.jobs.start(["train", "--resume", str(folder.absolute()), *words]).id}

    @made.get("/resumed")
    def resumed(job: Annotated[str, Field(max_length=32)]) -> dict[str, Any]:
        """How a command to resume is doing."""
        return studio.jobs.get(job).to_dict()

    @made.post("/delete")
    def delete(asked: Named) -> dict[str, Any]:
        """Move a run to the trash. Returns the ticket that brings it back."""
        folder = studio.run_folder(asked.name)
        studio.models.forget(asked.name)
        return {"ticket": discard(folder)}

    @made.post("/restore")
    def bring_back(asked: Ticket) -> dict[str, Any]:
        """Have a deleted run back."""
        return {"name": restore(studio.runs, asked.ticket).name}

    return made


def _starting(studio: Studio) -> set[str]:
    """Runs that a command of this studio resumes; it takes some seconds until they train."""
    jobs = (job for job in studio.jobs.all() if job.words[:2] == ("train", "--resume") and job.code is None)
    return {job.words[2].rpartition("/")[2] for job in jobs}


async def _differences(
    studio: Studio, tables: AsyncGenerator[dict[str, Row] | None, None]
) -> AsyncGenerator[dict[str, Any] | None, None]:
    before: dict[str, Row] = {}
    async for now in tables:
        if now is None:  # a sign of life
            yield None
            continue
        changed = {name: row for name, row in now.items() if before.get(name) != row}
        gone = dict.fromkeys(before.keys() - now.keys())
        before = now
        yield {"folder": str(studio.runs), "runs": {**changed, **gone}}
