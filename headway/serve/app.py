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
from headway.serve.context import RequestContext, ServerContext
from headway.serve.errors import ApiError
from headway.serve.generation import Generation
from headway.serve.middleware import Receive, Scope, Send
from headway.serve.requests import PreparedRequest, RequestBuilder
from headway.serve.responses import ResponseBuilder, collect, stream
from headway.serve.schemas import ChatRequest, CompletionRequest, EmbeddingRequest, RunRequest
from headway.serve.service import ServedModel
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


def create_app(served: ServedModel, server: ServerContext) -> FastAPI:
    """One model behind OpenAI's routes."""
    app = FastAPI(title="headway", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    routes, parts = Routes(served, server), dict[str, Any]()
    for path, handler, request, result in (
        ("/v1/chat/completions", routes.chat, ChatRequest, schemas.ChatCompletion),
        ("/v1/completions", routes.complete, CompletionRequest, schemas.Completion),
        ("/v1/embeddings", routes.embed, EmbeddingRequest, schemas.EmbeddingList),
        ("/v1/run", routes.run, RunRequest, schemas.RunList),
    ):
        answers = schemas.openapi_responses(result, 404, stream=issubclass(request, schemas.GenerationRequest))
        app.post(path, responses=answers, openapi_extra=_request_schema(request, served, parts))(handler)
    app.get("/v1/models", responses=schemas.openapi_responses(schemas.ModelList))(routes.models)
    app.get("/v1/models/{model:path}", responses=schemas.openapi_responses(schemas.ModelCard, 404))(routes.card)
    app.get("/health", responses={200: {"model": schemas.Health}, 503: {"model": schemas.Health}})(routes.health)
    plain = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    app.get("/metrics", responses=schemas.openapi_responses(schemas.Health) | {200: plain}, response_class=Response)(
        routes.metrics
    )
    for kind in (ApiError, HeadwayError, Exception):
        app.add_exception_handler(kind, _error_response)
    app.add_exception_handler(HTTPException, _http_exception)
    app.openapi = lambda: _openapi(app, parts)  # type: ignore[method-assign]
    return app


class Routes:
    def __init__(self, served: ServedModel, server: ServerContext) -> None:
        self.served, self.server = served, server

    async def chat(self, request: Request) -> Response:
        """An answer to a conversation."""
        return await self._generate(request, ChatRequest)

    async def complete(self, request: Request) -> Response:
        """A text that goes on."""
        return await self._generate(request, CompletionRequest)

    async def _generate(self, request: Request, schema: type[ChatRequest] | type[CompletionRequest]) -> Response:
        context: RequestContext = request.scope["context"]
        raw = await _json_bytes(request)
        asked = await self.server.run_in_thread(self._read, schema, raw)
        prompts, grammars = self.served.generator()
        grammar = await grammars.compile(asked.response_format)
        prepared, form = await self.server.run_in_thread(self._prepare, prompts, asked, grammar)
        assert self.served.engine is not None
        generation = Generation(self.served.engine, prepared.requests, self.server.metrics)
        context.attach(generation)
        await self.server.run_in_thread(generation.submit)
        self.server.metrics.prompt_tokens.inc(prepared.prompt_tokens)
        context.log_fields["prompt_tokens"] = prepared.prompt_tokens
        if prepared.stream:
            return EventStream(stream(form, generation, context))
        return JSONResponse(await collect(form, generation, context))

    def _prepare(
        self, prompts: RequestBuilder, asked: ChatRequest | CompletionRequest, grammar: Grammar | None
    ) -> tuple[PreparedRequest, ResponseBuilder]:
        """What the engine takes, made in a thread aside."""
        chat = isinstance(asked, ChatRequest)
        prepared = prompts.chat(asked, grammar) if isinstance(asked, ChatRequest) else prompts.complete(asked, grammar)
        spelling = self.served.spelling
        if prepared.top is not None:
            spelling.table  # noqa: B018 - takes a moment with a large vocabulary, which is better spent here
        return prepared, ResponseBuilder("chat" if chat else "text", self.served.id, prepared, spelling, prompts.ends)

    async def embed(self, request: Request) -> Response:
        """Vectors of texts."""
        asked, _, items, tokens = await self.server.run_in_thread(
            self._read_texts, EmbeddingRequest, await _json_bytes(request)
        )
        found = await self.served.tasks.run(self.served.tasks.embedder, items)
        return JSONResponse(self._list([_embedding(asked, each) for each in found], tokens))

    async def run(self, request: Request) -> Response:
        """Whatever else the model does with texts."""
        _, task, items, tokens = await self.server.run_in_thread(
            self._read_texts, RunRequest, await _json_bytes(request)
        )
        return JSONResponse({**self._list(await self.served.tasks.run(task, items), tokens), "task": task})

    def _read_texts(self, schema: type[Any], raw: bytes) -> tuple[Any, str, list[Any], int]:
        asked, tasks = self._read(schema, raw), self.served.tasks
        if schema is EmbeddingRequest and not tasks.embedder:
            raise ApiError(400, NO_EMBEDDING, "D001", "model")
        task = tasks.embedder if schema is EmbeddingRequest else tasks.choose(asked.task)
        return asked, task, *tasks.check(asked, task)

    def _list(self, data: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
        self.server.metrics.prompt_tokens.inc(tokens)
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.served.id, "usage": usage}

    def _read(self, schema: type[schemas.R], raw: bytes) -> schemas.R:
        try:
            body = parse_object(raw, self.server.limits.json_values)
        except ValueError as error:
            raise ApiError(400, f"the body: {error}", "C001") from None
        asked = schemas.validate(schema, body)
        self.served.check_name(asked.model)  # type: ignore[attr-defined]
        return asked

    async def models(self) -> Response:
        """The one model that is served."""
        return JSONResponse({"object": "list", "data": [self.served.card()]})

    async def card(self, model: str) -> Response:
        """What it can do."""
        self.served.check_name(model)
        return JSONResponse(self.served.card())

    async def health(self) -> Response:
        """Whether requests are answered."""
        if self.server.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        if why := self.served.trouble():
            return JSONResponse({"status": "failed", "reason": why}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(self) -> Response:
        """For Prometheus."""
        return Response(self.server.metrics.text(), media_type="text/plain; version=0.0.4")


def _embedding(asked: EmbeddingRequest, result: dict[str, Any]) -> dict[str, Any]:
    row: list[float] = result["embedding"]
    if asked.dimensions not in (None, len(row)):
        message = f"dimensions = {asked.dimensions}; this model's vectors have {len(row)}"
        raise ApiError(400, message, "C003", "dimensions")
    packed = base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
    shown = packed if asked.encoding_format == "base64" else row
    return {"object": "embedding", "index": result["index"], "embedding": shown}


async def _json_bytes(request: Request) -> bytes:
    if not JSON_TYPE.fullmatch(request.headers.get("content-type", "")):
        raise ApiError(415, "the body should be JSON, with the header `Content-Type: application/json`", "not_json")
    return await request.body()


async def _error_response(request: Request, error: Exception) -> Response:
    api_error = request.scope["context"].record_error(error)
    return JSONResponse(api_error.body(), api_error.status, headers=api_error.headers)


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    api_error = _route_error(request.app, request.method, error.status_code, (error.headers or {}).get("Allow", ""))
    return JSONResponse(api_error.body(), api_error.status, headers=api_error.headers)


def _route_error(app: FastAPI, method: str, status: int, takes: str) -> ApiError:
    paths = [route.path_format for route in app.routes if isinstance(route, APIRoute)]
    known = {
        404: f"there is nothing at this address; there is something at {', '.join(paths)}",
        405: f"this address takes no {method[:16]}, but {takes or 'nothing else'}",
    }
    headers = {"Allow": takes} if takes else {}
    return ApiError(status, known.get(status, "not possible"), "no_route", headers=headers)


def check_body(app: FastAPI, scope: Scope) -> None:
    """Refuse a body, unread, that comes with anything but a POST to an address that takes one."""
    found = {match: route for route in app.routes for match in [route.matches(scope)[0]]}
    if Match.FULL in found:
        if scope["method"] != "POST":
            raise ApiError(413, f"a {scope['method'][:16]} of this address has no body", "request_too_large")
    elif isinstance(route := found.get(Match.PARTIAL), Route):
        raise _route_error(app, scope["method"], 405, ", ".join(sorted(route.methods or ())))
    else:
        raise _route_error(app, scope["method"], 404, "")


def _request_schema(schema: type[BaseModel], served: ServedModel, parts: dict[str, Any]) -> dict[str, Any]:
    """How a request is described, which FastAPI cannot know: it is read in a thread. `parts` gets what it refers to."""
    described = schema.model_json_schema(ref_template="#/components/schemas/{model}")
    parts |= described.pop("$defs", {})
    described["properties"]["model"]["enum"] = [served.id]
    described["properties"] |= {name: {} for name in schemas.IGNORED}
    refused = {name: {"enum": schemas.empty_values(name)} for name in schemas.UNSUPPORTED}
    described["properties"] = refused | described["properties"]
    described["additionalProperties"] = False
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": described}}}}


def _openapi(app: FastAPI, parts: Mapping[str, Any]) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        made["components"]["schemas"] |= parts
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
        made["paths"]["/health"]["get"]["security"] = []
    return app.openapi_schema
