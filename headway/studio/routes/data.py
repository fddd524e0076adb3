"""Routes of the page data: a look at a dataset, files that are dropped on the page, data that were used before."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headway.config.recipe import UTF_8
from headway.runs.history import find_runs
from headway.studio.context import Studio
from headway.studio.data.look import look
from headway.studio.data.uploads import FOLDER, keep, new_batch
from headway.studio.stream import events, worked

RECENT = 12
"""Data of past runs that are offered."""
Words = Annotated[str, Field(max_length=4096)]


class Named(BaseModel):
    """Data that a person has named."""

    model_config = ConfigDict(extra="forbid")
    path: Words
    valid: Words = ""
    column: Annotated[str, Field(max_length=500)] = ""
    encoding: Annotated[str, Field(max_length=40)] = UTF_8


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/data")

    @made.get("/recent")
    def recent() -> list[str]:
        """Data of past runs, the latest first."""
        runs = find_runs(studio.runs)[: 4 * RECENT]
        named = (run.setting("data.train") for run in runs)
        return list(dict.fromkeys(each for each in named if isinstance(each, str) and each))[:RECENT]

    @made.post("/look")
    def survey(named: Named) -> StreamingResponse:
        """A survey, with its progress."""
        return events(worked(lambda tell: tell(look(named.path, named.valid, named.column, named.encoding))))

    @made.post("/batch")
    def batch() -> dict[str, str]:
        """A place for files that belong together."""
        name = new_batch()
        return {"batch": name, "folder": str(studio.state / FOLDER / name)}

    @made.put("/upload/{batch}/{name:path}")
    async def upload(batch: str, name: str, request: Request) -> dict[str, str]:
        """One file, as the body of the request."""
        return {"path": str(await keep(studio.state, batch, name, request.stream()))}

    return made
