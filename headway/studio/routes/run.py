"""Routes of the page of a run: its facts, its curves, its log, live; its report."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from headway.errors import UsageError
from headway.report.page import policy
from headway.report.report import gather, render
from headway.runs.history import History
from headway.studio.context import Studio
from headway.studio.runs.curves import Axis, curves
from headway.studio.runs.details import details, log_lines, picture_of, pulse
from headway.studio.stream import changes, events

Name = Annotated[str, Query(min_length=1, max_length=520)]
Place = Annotated[float | None, Query(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Query(ge=0, le=0.5, allow_inf_nan=False)]


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/run")

    def read(name: str) -> History:
        return studio.histories.read(studio.run_folder(name))

    @made.get("")
    def facts(name: Name) -> dict[str, Any]:
        """All that is known of a run, but its curves."""
        found = details(read(name))
        for sample in found["samples"]:
            number = sample["picture"]
            sample["picture"] = number and studio.link(f"/api/run/picture/{number}/{name}")
        return {**found, "report": studio.link(f"/api/run/report/{name}")}

    @made.get("/curves")
    def drawn(name: Name, axis: Axis = "step", low: Place = None, high: Place = None, smooth: Share = 0.025) -> Any:
        """The curves over a part of an axis."""
        check_part(low, high)
        return curves(read(name), axis, low, high, smooth)

    @made.get("/log")
    def log(name: Name, steps: bool = False) -> dict[str, Any]:
        """The end of the log."""
        return {"lines": log_lines(studio.run_folder(name), steps)}

    @made.get("/events")
    def live(name: Name) -> StreamingResponse:
        """What tells the page that there is something new."""
        studio.run_folder(name)
        return events(changes(lambda: pulse(read(name))))

    @made.get("/report/{name:path}")
    def report(name: str) -> Response:
        """The report as `headway runs report` writes it."""
        run = read(name)
        headers = {"content-security-policy": f"{policy()}; sandbox allow-scripts"}
        return Response(render(run, gather(run)), media_type="text/html", headers=headers)

    @made.get("/picture/{number}/{name:path}")
    def picture(number: str, name: str) -> Response:
        """The picture of a sample."""
        return Response(picture_of(studio.run_folder(name), number), media_type="image/png")

    return made


def check_part(low: float | None, high: float | None) -> None:
    """Refuse a part of an axis that has no length."""
    if low is not None and high is not None and not low < high:
        raise UsageError("U001", f"the part from {low:g} to {high:g} is empty")
