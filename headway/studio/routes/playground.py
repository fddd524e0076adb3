"""Routes of the playground: models, what each can do, and doing it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from headway.config.recipe import RUNS
from headway.studio.context import Studio
from headway.studio.play.choice import models
from headway.studio.play.copies import Tried
from headway.studio.play.describe import describe, generation_fields, tasks_of
from headway.studio.play.generation import Play
from headway.studio.play.prediction import check_form, filled, predict
from headway.studio.stream import events, stepped

Name = Annotated[str, Field(min_length=1, max_length=1000)]
Text = Annotated[str, Field(max_length=1_000_000)]
Settings = Annotated[dict[str, Any], Field(max_length=60)]
Form = Annotated[dict[str, Any], Field(max_length=30)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: Name


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["system", "user", "assistant"]
    content: Text


class Generation(Body):
    """A text or a conversation to continue; or tokens, and one that is forced after them: a fork."""

    text: Text = ""
    messages: Annotated[list[Message], Field(max_length=1000)] | None = None
    ids: Annotated[list[int], Field(max_length=200_000)] = []
    forced: Annotated[int, Field(ge=0)] | None = None
    settings: Settings = {}


class Search(Body):
    text: Text = ""
    settings: Settings = {}


class Scoring(Body):
    text: Text


class Prediction(Body):
    task: Name
    form: Form


class Copies(Body):
    """What was tried; files of the form by their names."""

    kind: Literal["generate", "chat", "beams", "score", "task"]
    text: Text = ""
    messages: Annotated[list[Message], Field(max_length=1000)] = []
    settings: Settings = {}
    task: str = ""
    form: Form = {}
    uploads: Annotated[list[str], Field(max_length=10)] = []


def router(studio: Studio) -> APIRouter:
    made = APIRouter(prefix="/api/playground")

    @made.get("/models")
    def listed() -> dict[str, Any]:
        return {"models": models(studio.runs)}

    @made.get("/model")
    def described(name: Name) -> dict[str, Any]:
        """What a model is; it is loaded for that."""
        bundle, _ = studio.models.get(name)
        return describe(name, bundle)

    @made.get("/settings")
    def settings() -> dict[str, Any]:
        return generation_fields()

    @made.post("/generate")
    def generate(body: Generation) -> StreamingResponse:
        bundle, lock = studio.models.get(body.model)
        play, sampling = Play(bundle, lock), bundle.sampling(**body.settings)
        messages = None if body.messages is None else [message.model_dump() for message in body.messages]
        prompt = play.prompt(body.text, messages, body.ids)
        return events(stepped(play.generate(prompt, body.forced, sampling)))

    @made.post("/beams")
    def beams(body: Search) -> dict[str, Any]:
        return Play(*studio.models.get(body.model)).beams(body.text, body.settings)

    @made.post("/score")
    def score(body: Scoring) -> dict[str, Any]:
        return Play(*studio.models.get(body.model)).score(body.text)

    @made.post("/predict")
    def predicted(body: Prediction) -> dict[str, Any]:
        bundle, lock = studio.models.get(body.model)
        return predict(bundle, lock, body.task, body.form)

    @made.post("/copies")
    def copies(body: Copies) -> dict[str, Any]:
        """The same as a command, as Python and as a request."""
        task, form = None, filled(body.form)
        if body.kind == "task":
            bundle, _ = studio.models.get(body.model)
            tasks = tasks_of(bundle)
            task = tasks.tasks[tasks.choose(body.task)]
            check_form(task, form)
        own = (studio.runs / body.model / "run").is_dir() and studio.runs != studio.runs.__class__(RUNS)
        tried = Tried(
            place=str(studio.runs / body.model) if own else body.model,
            served=body.model,
            kind=body.kind,
            text=body.text,
            messages=[message.model_dump() for message in body.messages],
            settings=body.settings,
            task=task,
            form=form,
            uploads=body.uploads,
        )
        return tried.to_dict()

    return made
