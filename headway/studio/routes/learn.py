"""Routes of the page learn: the model of the tour, and a pupil that learns step by step. All else it asks of X-ray."""

from __future__ import annotations

import math
import threading
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headway.studio.context import Studio
from headway.studio.learn.pupil import Pupil
from headway.studio.learn.tour import Tour
from headway.studio.stream import changes, events


class TeachBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str, Field(min_length=1, max_length=1000)]
    input: Annotated[str, Field(min_length=1, max_length=1000)]
    steps: Annotated[int, Field(ge=0, le=100)]
    lr: Annotated[float, Field(gt=0, le=10, strict=False)]
    fresh: bool = False
    """Begin with a new pupil."""


def router(studio: Studio) -> APIRouter:
    made, tour = APIRouter(prefix="/api/learn"), Tour(studio)
    pupils: dict[str, Pupil] = {}
    one_at_a_time = threading.Lock()

    @made.get("")
    def state() -> dict[str, Any]:
        """Whether the model of the tour is trained."""
        return tour.state()

    @made.get("/events")
    def live() -> StreamingResponse:
        """The same, again whenever it changes."""
        return events(changes(tour.state, 0.5))

    @made.post("/train")
    def train() -> dict[str, Any]:
        """Train it, if it is not there."""
        tour.start()
        return tour.state()

    @made.post("/teach")
    def teach(body: TeachBody) -> dict[str, Any]:
        """Some training steps of a model that starts from nothing."""
        bundle, _ = studio.models.get(body.model)
        with one_at_a_time:
            if body.fresh or body.model not in pupils:
                pupils.clear()
                pupils[body.model] = Pupil(bundle)
            pupil = pupils[body.model]
            pupil.teach(body.steps, body.lr)
            losses = [loss if math.isfinite(loss) else None for loss in pupil.losses]
            return {"losses": losses, "norms": pupil.norms, "answers": pupil.answers(body.input)}

    return made
