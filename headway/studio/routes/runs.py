"""Routes of the page of runs: the list, live."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from headway.api.past_runs import run_numbers
from headway.runs.history import find_runs
from headway.studio.context import Studio
from headway.studio.stream import changes, events


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/runs")

    @made.get("")
    def listed() -> dict[str, Any]:
        """The numbers of all runs, newest first."""
        return {"folder": str(studio.runs), "runs": [run_numbers(run) for run in find_runs(studio.runs)]}

    @made.get("/events")
    def live() -> StreamingResponse:
        """The same, again whenever it changes."""
        return events(changes(listed))

    return made
