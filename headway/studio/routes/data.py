"""Routes of the page data: a look at a dataset, files that are dropped on the page, data that were used before."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headway.config.recipe import UTF_8
from headway.config.toml import read_toml
from headway.errors import HeadwayError
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
        recipes = sorted(studio.runs.glob("*/run/recipe.toml"), key=_written, reverse=True)[: 4 * RECENT]
        return list(dict.fromkeys(filter(None, map(_data_of, recipes))))[:RECENT]

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


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # the run has been deleted
        return 0.0


def _data_of(recipe: Path) -> str:
    """The data that a run was trained on; empty for made-up data, and for what cannot be read."""
    with suppress(HeadwayError):
        found = read_toml(recipe)[0].get("data")
        named = found.get("train") if isinstance(found, dict) else ""
        return named if isinstance(named, str) else ""
    return ""
