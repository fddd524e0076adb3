"""Routes of the page X-ray: a pass of a model, and whatever the page asks about it.

The numbers of a pass stay here. A page gets an id, and asks for the map or the vector that it is about to draw.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from headway.errors import DataError
from headway.inspect.attribution import Method
from headway.inspect.changes import Change, Scale
from headway.inspect.show.page import page
from headway.studio.context import Studio
from headway.studio.xray.card import model_card
from headway.studio.xray.passes import Passes
from headway.studio.xray.values import (
    before_and_after,
    embeddings,
    head_values,
    looks,
    map_values,
    neurons,
    pass_values,
)

INTEGRATED = 20_000_000
"""Weights of a model up to which gradients are integrated while a person waits; larger ones give one gradient."""
Name = Annotated[str, Field(min_length=1, max_length=1000)]
Text = Annotated[str, Field(max_length=20_000)]
Number = Annotated[int, Field(ge=0, le=1 << 24)]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelBody(Body):
    model: Name


class Turn(Body):
    """One part of a model with a new strength; 0 takes it away."""

    kind: Annotated[str, Field(max_length=60)] = ""
    layer: Number
    head: Number | None = None
    neuron: Number | None = None
    part: Annotated[str, Field(pattern=r"^(attention|ffn)?$")] = ""
    factor: Annotated[float, Field(ge=-20, le=20, strict=False)]

    def change(self) -> Change:
        return Scale(**self.model_dump())


class RunBody(ModelBody):
    input: Text
    second: Text | None = None
    target: Text | None = None


class PassBody(Body):
    key: Key


class KindBody(PassBody):
    kind: Annotated[str, Field(max_length=60)]


class MapBody(KindBody):
    layer: Number
    head: Number | None = None
    """None: the mean of the layer's heads."""
    rolled: bool = False
    """The attention rollout up to the layer."""


class PlaceBody(KindBody):
    position: Number


class NeuronsBody(PlaceBody):
    layer: Number


class CellBody(KindBody):
    layer: Number
    head: Number
    query: Number
    at: Number


class LensBody(PassBody):
    top: Annotated[int, Field(ge=1, le=10)] = 3


class ChangeBody(PassBody):
    changes: Annotated[list[Turn], Field(max_length=256)]
    position: Number


class AnswerBody(PassBody):
    position: Number
    answer: Number | None = None


class PatchBody(ModelBody):
    first: Text
    second: Text
    target: Text | None = None
    kind: Annotated[str, Field(max_length=60)] = ""


def router(studio: Studio) -> APIRouter:
    made, passes = APIRouter(prefix="/api/xray"), Passes(studio.models)

    @made.post("/model")
    def model(body: ModelBody) -> dict[str, Any]:
        """What the model is made of, and an input to begin with."""
        with passes.session(body.model) as session:
            return model_card(session)

    @made.post("/pass")
    def run(body: RunBody) -> dict[str, Any]:
        """Run an input. The answer holds the id under which everything else is asked for."""
        given = body.input if body.second is None else (body.input, body.second)
        with passes.session(body.model) as session:
            seen = session.run(given, target=body.target)
            if seen.part().stack is None:
                raise DataError("D001", "X-ray draws layers, and this model has hops", "headway inspect shows them")
            key = passes.keep(body.model, session, seen)
            return {"key": key, "page": studio.link(f"/api/xray/page/{key}"), **pass_values(seen)}

    @made.get("/page/{key}")
    def saved(key: Key) -> Response:
        """The pass as one page to keep, which needs no studio."""
        with passes.use(key) as (session, seen):
            text = page(session.loaded.name, session.overview(), seen)
        return Response(
            text, media_type="text/html", headers={"content-disposition": 'attachment; filename="xray.html"'}
        )

    _add_maps(made, passes)
    _add_answers(made, passes)
    return made


def _add_maps(made: APIRouter, passes: Passes) -> None:
    """Routes for what goes on inside."""

    @made.post("/heads")
    def heads(body: KindBody) -> dict[str, Any]:
        """All heads of a kind: small pictures and statistics."""
        with passes.use(body.key) as (_, seen):
            return head_values(seen, body.kind)

    @made.post("/map")
    def one_map(body: MapBody) -> dict[str, Any]:
        """One map in full."""
        with passes.use(body.key) as (_, seen):
            return map_values(seen, body.kind, body.layer, body.head, body.rolled)

    @made.post("/looks")
    def looked_at(body: PlaceBody) -> list[list[float]]:
        """Where one position looks in each layer."""
        with passes.use(body.key) as (_, seen):
            return looks(seen, body.kind, body.position)

    @made.post("/cell")
    def cell(body: CellBody) -> dict[str, Any]:
        """The arithmetic of one weight."""
        with passes.use(body.key) as (_, seen):
            return seen.cell(body.kind, body.layer, body.head, body.query, body.at)

    @made.post("/embeddings")
    def embedded(body: KindBody) -> dict[str, Any]:
        """The vectors that enter a stack."""
        with passes.use(body.key) as (session, seen):
            return embeddings(session, seen, body.kind)

    @made.post("/neurons")
    def hidden(body: NeuronsBody) -> dict[str, Any]:
        """Inside a feed-forward network, at one position."""
        with passes.use(body.key) as (session, seen):
            return neurons(session, seen, body.kind, body.layer, body.position)


def _add_answers(made: APIRouter, passes: Passes) -> None:
    """Routes for what the model says, and what moves it."""

    @made.post("/lens")
    def lens(body: LensBody) -> list[list[list[dict[str, Any]]]]:
        """What the head would say after each layer, at each position."""
        with passes.use(body.key) as (_, seen):
            return [[[a.to_dict() for a in row] for row in layer] for layer in seen.lens(body.top)]

    @made.post("/change")
    def change(body: ChangeBody) -> dict[str, Any]:
        """The answers at a position before and after changes of the model."""
        with passes.use(body.key) as (session, seen):
            return before_and_after(session, seen, [each.change() for each in body.changes], body.position)

    @made.post("/attribution")
    def attribution(body: AnswerBody) -> dict[str, Any]:
        """How much each position of the input speaks for an answer."""
        with passes.use(body.key) as (session, seen):
            method: Method = "integrated" if session.model.parameter_count() < INTEGRATED else "gradient_x_input"
            found = session.attribution(seen.reading, method, answer=body.answer, position=body.position)
            return found.to_dict()

    @made.post("/patching")
    def patching(body: PatchBody) -> dict[str, Any]:
        """Which activations carry the difference between two inputs."""
        with passes.session(body.model) as session:
            return session.patching(body.first, body.second, kind=body.kind, target=body.target or "").to_dict()
