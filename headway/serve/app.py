"""The routes. What comes before them (keys, limits, who may call) is the gate's business."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from headway.errors import HeadwayError
from headway.generate.grammar.grammar import Grammar
from headway.jsonfile import parse_object
from headway.serve import schemas
from headway.serve.context import State, Visit
from headway.serve.errors import Problem
from headway.serve.generation import Generation
from headway.serve.middleware import Receive, Scope, Send
from headway.serve.requests import Job, Prompts
from headway.serve.responses import Form, collect, stream
from headway.serve.schemas import ChatRequest, CompletionRequest, EmbeddingRequest, RunRequest
from headway.serve.service import Service
from headway.tasks.inputs import Item
from headway.version import __version__

NO_EMBEDDING = "this model has no text encoder, so it makes no embeddings"
JSON_TYPE = re.compile(r"application/(?:[\w.-]+\+)?json *(?:;.*)?", re.IGNORECASE)


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self.parts) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def create_app(service: Service, state: State) -> FastAPI:
    """One model behind OpenAI's routes."""
    app = FastAPI(title="headway", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    routes, parts = Routes(service, state), dict[str, Any]()
    for path, handler, request, result in (
        ("/v1/chat/completions", routes.chat, ChatRequest, schemas.ChatCompletion),
        ("/v1/completions", routes.complete, CompletionRequest, schemas.Completion),
        ("/v1/embeddings", routes.embed, EmbeddingRequest, schemas.EmbeddingList),
        ("/v1/run", routes.run, RunRequest, schemas.RunList),
    ):
        answers = schemas.described(result, 404, stream=issubclass(request, schemas.WritingRequest))
        app.post(path, responses=answers, openapi_extra=_body(request, service, parts))(handler)
    app.get("/v1/models", responses=schemas.described(schemas.ModelList))(routes.models)
    app.get("/v1/models/{model:path}", responses=schemas.described(schemas.ModelCard, 404))(routes.card)
    app.get("/health", responses={200: {"model": schemas.Health}, 503: {"model": schemas.Health}})(routes.health)
    plain = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    app.get("/metrics", responses=schemas.described(schemas.Health) | {200: plain}, response_class=Response)(
        routes.metrics
    )
    for kind in (Problem, HeadwayError, Exception):
        app.add_exception_handler(kind, _problem)
    app.add_exception_handler(HTTPException, _no_route)
    app.openapi = lambda: _description(app, parts)  # type: ignore[method-assign]
    return app


class Routes:
    def __init__(self, service: Service, state: State) -> None:
        self.service, self.state = service, state

    async def chat(self, request: Request) -> Response:
        """An answer to a conversation."""
        return await self._write(request, ChatRequest)

    async def complete(self, request: Request) -> Response:
        """A text that goes on."""
        return await self._write(request, CompletionRequest)

    async def _write(self, request: Request, schema: type[ChatRequest] | type[CompletionRequest]) -> Response:
        visit: Visit = request.scope["visit"]
        raw = await _raw(request)
        asked = await self.state.aside(self._read, schema, raw)
        prompts, grammars = self.service.writer()
        grammar = await grammars.compile(asked.response_format)
        job, form = await self.state.aside(self._prepare, prompts, asked, grammar)
        assert self.service.engine is not None
        generation = Generation(self.service.engine, job.requests, self.state.metrics)
        visit.begin(generation)
        await self.state.aside(generation.submit)
        self.state.metrics.prompt_tokens.inc(job.prompt_tokens)
        visit.facts["prompt_tokens"] = job.prompt_tokens
        if job.stream:
            return EventStream(stream(form, generation, visit))
        return JSONResponse(await collect(form, generation, visit))

    def _prepare(
        self, prompts: Prompts, asked: ChatRequest | CompletionRequest, grammar: Grammar | None
    ) -> tuple[Job, Form]:
        """What the engine takes, made in a thread aside."""
        chat = isinstance(asked, ChatRequest)
        job = prompts.chat(asked, grammar) if isinstance(asked, ChatRequest) else prompts.complete(asked, grammar)
        if job.top is not None:
            self.service.spelling.table  # noqa: B018 - takes a moment with a large vocabulary, which is better spent here
        return job, Form("chat" if chat else "text", self.service.id, job, self.service.spelling, prompts.ends)

    async def embed(self, request: Request) -> Response:
        """Vectors of texts."""
        asked, _, items, tokens = await self.state.aside(self._read_texts, EmbeddingRequest, await _raw(request))
        found = await self.service.tasks.run("embed", items)
        return JSONResponse(self._list([_vector(asked, each) for each in found], tokens))

    async def run(self, request: Request) -> Response:
        """Whatever else the model does with texts."""
        _, task, items, tokens = await self.state.aside(self._read_texts, RunRequest, await _raw(request))
        return JSONResponse({**self._list(await self.service.tasks.run(task, items), tokens), "task": task})

    def _read_texts(self, schema: type[Any], raw: bytes) -> tuple[Any, str, list[Item], int]:
        asked, tasks = self._read(schema, raw), self.service.tasks
        if schema is EmbeddingRequest and "embed" not in tasks.names:
            raise Problem(400, NO_EMBEDDING, "D001", "model")
        task = "embed" if schema is EmbeddingRequest else tasks.choose(asked.task)
        return asked, task, *tasks.check(asked, task)

    def _list(self, data: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
        self.state.metrics.prompt_tokens.inc(tokens)
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.service.id, "usage": usage}

    def _read(self, schema: type[schemas.R], raw: bytes) -> schemas.R:
        try:
            body = parse_object(raw, self.state.limits.json_values)
        except ValueError as error:
            raise Problem(400, f"the body: {error}", "C001") from None
        asked = schemas.read(schema, body)
        self.service.check_name(asked.model)  # type: ignore[attr-defined]
        return asked

    async def models(self) -> Response:
        """The one model that is served."""
        return JSONResponse({"object": "list", "data": [self.service.card()]})

    async def card(self, model: str) -> Response:
        """What it can do."""
        self.service.check_name(model)
        return JSONResponse(self.service.card())

    async def health(self) -> Response:
        """Whether requests are answered."""
        if self.state.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        if why := self.service.trouble():
            return JSONResponse({"status": "failed", "reason": why}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(self) -> Response:
        """For Prometheus."""
        return Response(self.state.metrics.text(), media_type="text/plain; version=0.0.4")


def _vector(asked: EmbeddingRequest, result: dict[str, Any]) -> dict[str, Any]:
    row: list[float] = result["embedding"]
    if asked.dimensions not in (None, len(row)):
        message = f"dimensions = {asked.dimensions}; this model's vectors have {len(row)}"
        raise Problem(400, message, "C003", "dimensions")
    packed = base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
    shown = packed if asked.encoding_format == "base64" else row
    return {"object": "embedding", "index": result["index"], "embedding": shown}


async def _raw(request: Request) -> bytes:
    if not JSON_TYPE.fullmatch(request.headers.get("content-type", "")):
        raise Problem(415, "the body should be JSON, with the header `Content-Type: application/json`", "not_json")
    return await request.body()


async def _problem(request: Request, error: Exception) -> Response:
    problem = request.scope["visit"].note(error)
    return JSONResponse(problem.body(), problem.status, headers=problem.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = _nowhere(request.app, request.method, error.status_code, (error.headers or {}).get("Allow", ""))
    return JSONResponse(problem.body(), problem.status, headers=problem.headers)


def _nowhere(app: FastAPI, method: str, status: int, takes: str) -> Problem:
    paths = [route.path_format for route in app.routes if isinstance(route, APIRoute)]
    known = {
        404: f"there is nothing at this address; there is something at {', '.join(paths)}",
        405: f"this address takes no {method[:16]}, but {takes or 'nothing else'}",
    }
    headers = {"Allow": takes} if takes else {}
    return Problem(status, known.get(status, "not possible"), "no_route", headers=headers)


def check_body(app: FastAPI, scope: Scope) -> None:
    """Refuse a body, unread, that comes with anything but a POST to an address that takes one."""
    found = {match: route for route in app.routes for match in [route.matches(scope)[0]]}
    if Match.FULL in found:
        if scope["method"] != "POST":
            raise Problem(413, f"a {scope['method'][:16]} of this address has no body", "request_too_large")
    elif isinstance(route := found.get(Match.PARTIAL), Route):
        raise _nowhere(app, scope["method"], 405, ", ".join(sorted(route.methods or ())))
    else:
        raise _nowhere(app, scope["method"], 404, "")


def _body(schema: type[BaseModel], service: Service, parts: dict[str, Any]) -> dict[str, Any]:
    """How a request is described, which FastAPI cannot know: it is read in a thread. `parts` gets what it refers to."""
    described = schema.model_json_schema(ref_template="#/components/schemas/{model}")
    parts |= described.pop("$defs", {})
    described["properties"]["model"]["enum"] = [service.id]
    described["properties"] |= {name: {} for name in schemas.IGNORED}
    refused = {name: {"enum": schemas.nothings(name)} for name in schemas.UNSUPPORTED}
    described["properties"] = refused | described["properties"]
    described["additionalProperties"] = False
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": described}}}}


def _description(app: FastAPI, parts: Mapping[str, Any]) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        made["components"]["schemas"] |= parts
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
        made["paths"]["/health"]["get"]["security"] = []
    return app.openapi_schema
