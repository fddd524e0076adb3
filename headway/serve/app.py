"""The routes of the API. The middleware has checked keys and limits before a route runs."""

from __future__ import annotations

import base64
import json
import re
import struct
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from headway.errors import HeadwayError
from headway.generate.engine.engine import Request as EngineRequest
from headway.jsonfile import parse_object
from headway.serve import schemas
from headway.serve.audio.form import parse_form
from headway.serve.audio.transcriptions import form_schema, read_request, response_of, transcript
from headway.serve.chat.conversation import ToolUse
from headway.serve.context import ServerContext
from headway.serve.errors import ApiError
from headway.serve.middleware import Middleware, Scope
from headway.serve.openapi import results
from headway.serve.openapi.description import openapi, request_schema
from headway.serve.page.page import STATIC, page, static_file
from headway.serve.requests import RequestBuilder
from headway.serve.responses import EventStream, GenerationResponse, TokenSpelling
from headway.serve.responses_api.items import chat_request, input_messages, rename
from headway.serve.responses_api.response import ResponsesResponse
from headway.serve.responses_api.schema import ResponsesRequest
from headway.serve.responses_api.store import ResponseStore
from headway.serve.schemas import ChatRequest, CompletionRequest, EmbeddingRequest, RunRequest
from headway.version import __version__

JSON_TYPE = re.compile(r"application/(?:[\w.-]+\+)?json *(?:;.*)?", re.IGNORECASE)


def create_app(server: ServerContext) -> Middleware:
    """Build the ASGI application: the routes inside the middleware."""
    app = FastAPI(title="headway", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    routes, parts = Routes(server), dict[str, Any]()
    for path, handler, request, result in (
        ("/v1/chat/completions", routes.chat, ChatRequest, results.ChatCompletion),
        ("/v1/completions", routes.complete, CompletionRequest, results.Completion),
        ("/v1/responses", routes.respond, ResponsesRequest, results.ResponseObject),
        ("/v1/embeddings", routes.embed, EmbeddingRequest, results.EmbeddingList),
        ("/v1/run", routes.run, RunRequest, results.RunList),
    ):
        responses = results.openapi_responses(result, 404, stream="stream" in request.model_fields)
        app.post(path, responses=responses, openapi_extra=request_schema(request, server.model.id, parts))(handler)
    form = form_schema(server.model.id)
    responses = results.openapi_responses(results.Transcription, 404)
    app.post("/v1/audio/transcriptions", responses=responses, openapi_extra=form)(routes.transcribe)
    described = results.openapi_responses(results.ResponseObject, 404)
    app.get("/v1/responses/{response_id}", responses=described)(routes.response)
    described = results.openapi_responses(results.DeletedResponse, 404)
    app.delete("/v1/responses/{response_id}", responses=described)(routes.forget)
    app.get("/v1/models", responses=results.openapi_responses(results.ModelList))(routes.models)
    app.get("/v1/models/{model:path}", responses=results.openapi_responses(results.ModelCard, 404))(routes.card)
    app.get("/health", responses={200: {"model": results.Health}, 503: {"model": results.Health}})(routes.health)
    plain = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    responses = results.openapi_responses(results.Health) | {200: plain}
    app.get("/metrics", responses=responses, response_class=Response)(routes.metrics)
    for path in ("/", *STATIC):
        app.get(path, include_in_schema=False, response_class=Response)(routes.page)
    for kind in (ApiError, HeadwayError, Exception):
        app.add_exception_handler(kind, _error_response)
    app.add_exception_handler(HTTPException, _http_exception)
    app.openapi = lambda: openapi(app, parts)  # type: ignore[method-assign]
    return Middleware(app, server, partial(_check_body, app))


class Routes:
    """The handlers of the routes. FastAPI shows the first line of each docstring in /openapi.json."""

    def __init__(self, server: ServerContext) -> None:
        self.server, self.served = server, server.model
        self.store = ResponseStore(server.limits)
        self.spelling = None if self.served.tokenizer is None else TokenSpelling(self.served.tokenizer)

    async def chat(self, request: Request) -> Response:
        """Answer a conversation."""
        return await self._generate(request, ChatRequest)

    async def complete(self, request: Request) -> Response:
        """Continue a text."""
        return await self._generate(request, CompletionRequest)

    async def _generate(self, request: Request, schema: type[ChatRequest] | type[CompletionRequest]) -> Response:
        body = await self.server.run_in_thread(self._parse, schema, await _json_bytes(request))
        prepared = await self._prepare(body)
        response = GenerationResponse(request.scope["context"], body, *prepared)
        if isinstance(body, CompletionRequest) and body.echo and body.logprobs is not None:
            prompts = {each.prompt for each in prepared[0]}
            response.prompt_events = await self.served.tasks.score(prompts, body.logprobs)
        return await self._send(request, response)

    async def _prepare(
        self, body: ChatRequest | CompletionRequest
    ) -> tuple[list[EngineRequest], TokenSpelling, ToolUse | None]:
        """The requests to the engine, and the tools that the answers may call."""
        builder, grammars, server, tools = self._builder(), self.served.grammars, self.server, None
        assert grammars is not None and self.spelling is not None
        if isinstance(body, ChatRequest):
            tools = await server.run_in_thread(builder.conversations.tool_use, body)
        grammar = await grammars.compile(body.response_format, tools)
        return await server.run_in_thread(builder.build, body, grammar, tools), self.spelling, tools

    async def _send(self, request: Request, response: GenerationResponse) -> Response:
        request.scope["context"].work = response
        await self.server.run_in_thread(response.submit)
        return EventStream(response.stream()) if response.body.stream else JSONResponse(await response.collect())

    def _builder(self) -> RequestBuilder:
        if self.served.requests is None:
            raise ApiError(400, "this model does not generate text", "D001", "model")
        return self.served.requests

    async def respond(self, request: Request) -> Response:
        """Answer a conversation that the server can remember."""
        asked = await self.server.run_in_thread(self._parse, ResponsesRequest, await _json_bytes(request))
        try:
            messages = [*self.store.previous(asked.previous_response_id), *input_messages(asked)]
            chat = await self.server.run_in_thread(self._chat_request, asked, messages)
            response = ResponsesResponse(request.scope["context"], chat, *await self._prepare(chat))
        except ApiError as error:
            raise rename(error) from None
        response.remember(asked, messages, self.store)
        return await self._send(request, response)

    def _chat_request(self, asked: ResponsesRequest, messages: list[dict[str, Any]]) -> ChatRequest:
        chat = chat_request(asked, messages)
        return self._builder().shorten(chat) if asked.truncation == "auto" else chat

    async def response(self, response_id: str) -> Response:
        """Return a response that the server remembers."""
        return JSONResponse(self.store.get(response_id).response)

    async def forget(self, response_id: str) -> Response:
        """Forget a response."""
        self.store.delete(response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    async def embed(self, request: Request) -> Response:
        """Compute the embeddings of texts."""
        raw = await _json_bytes(request)
        body, _, items, tokens = await self.server.run_in_thread(self._parse_inputs, EmbeddingRequest, raw)
        results = await self.served.tasks.run(self.served.tasks.embedder, items)
        return JSONResponse(self._list([_embedding(body, each) for each in results], tokens))

    async def run(self, request: Request) -> Response:
        """Run a task of the model on texts."""
        raw = await self._uploaded(request) or await _json_bytes(request)
        _, task, items, tokens = await self.server.run_in_thread(self._parse_inputs, RunRequest, raw)
        return JSONResponse({**self._list(await self.served.tasks.run(task, items), tokens), "task": task})

    async def transcribe(self, request: Request) -> Response:
        """Write down what is said in a sound."""
        kind, body = request.headers.get("content-type", ""), await request.body()
        asked = read_request(await self.server.run_in_thread(parse_form, kind, body))
        self.served.check_name(asked.model)
        if (task := self.served.tasks.transcriber) is None:
            raise ApiError(400, "this model does not transcribe sounds", "D001", "model")
        found = await self.served.tasks.in_turn(transcript, self.served.tasks.bundle, task, asked, self.server.limits)
        return response_of(found, task, asked.format)

    async def _uploaded(self, request: Request) -> bytes | None:
        """The JSON for a body that is an image or sound file itself, where the model reads such; None for others."""
        kind, name = request.headers.get("content-type", ""), next(iter(self.served.tasks.names), "")
        sent = {"image": "image", "audio": "sound"}.get(kind.partition("/")[0])
        if sent is None or not name or self.served.tasks.tasks[name].takes != sent:
            return None
        file = base64.b64encode(await request.body()).decode()
        return json.dumps({"model": self.served.id, "input": file}).encode()

    def _parse_inputs(self, schema: type[Any], raw: bytes) -> tuple[Any, str, list[Any], int]:
        body, tasks = self._parse(schema, raw), self.served.tasks
        if schema is EmbeddingRequest and not tasks.embedder:
            raise ApiError(400, "this model has no text encoder, so it computes no embeddings", "D001", "model")
        task = tasks.embedder if schema is EmbeddingRequest else tasks.choose(body.task)
        return body, task, *tasks.check(body, task)

    def _list(self, data: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
        self.server.metrics.prompt_tokens.inc(tokens)
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": self.served.id, "usage": usage}

    def _parse(self, schema: type[schemas.R], raw: bytes) -> schemas.R:
        try:
            values = parse_object(raw, self.server.limits.json_values)
        except ValueError as error:
            raise ApiError(400, f"the body: {error}", "C001") from None
        if schema in (ChatRequest, ResponsesRequest) and self.served.requests is not None:
            self.served.requests.conversations.check_tools(values)
        body = schemas.validate(schema, values)
        self.served.check_name(body.model)  # type: ignore[attr-defined]
        return body

    async def models(self) -> Response:
        """List the model that is served."""
        return JSONResponse({"object": "list", "data": [self.served.card()]})

    async def card(self, model: str) -> Response:
        """Describe the model and what it can do."""
        self.served.check_name(model)
        return JSONResponse(self.served.card())

    async def page(self, request: Request) -> Response:
        """Show what is served to people with a browser."""
        path = request.scope["path"]
        if path in STATIC:
            return static_file(path)
        return await self.server.run_in_thread(page, self.server, request.scope["headers"])

    async def health(self) -> Response:
        """Tell whether the server answers requests."""
        if self.server.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        if why := self.served.failure():
            return JSONResponse({"status": "failed", "reason": why}, 503)
        return JSONResponse({"status": "ok"})

    async def metrics(self) -> Response:
        """Return the metrics in Prometheus's text format."""
        return Response(self.server.metrics.text(), media_type="text/plain; version=0.0.4")


def _embedding(body: EmbeddingRequest, result: dict[str, Any]) -> dict[str, Any]:
    row: list[float] = result["embedding"]
    if body.dimensions not in (None, len(row)):
        message = f"dimensions = {body.dimensions}, but this model's embeddings have {len(row)}"
        raise ApiError(400, message, "C003", "dimensions")
    packed = base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()
    shown = packed if body.encoding_format == "base64" else row
    return {"object": "embedding", "index": result["index"], "embedding": shown}


async def _json_bytes(request: Request) -> bytes:
    if not JSON_TYPE.fullmatch(request.headers.get("content-type", "")):
        raise ApiError(415, "the body must be JSON, with the header `Content-Type: application/json`", "not_json")
    return await request.body()


async def _error_response(request: Request, error: Exception) -> Response:
    api_error = request.scope["context"].record_error(error)
    return JSONResponse(api_error.body(), api_error.status, headers=api_error.headers)


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "")
    api_error = _route_error(request.app, request.method, error.status_code, allowed)
    return JSONResponse(api_error.body(), api_error.status, headers=api_error.headers)


def _route_error(app: FastAPI, method: str, status: int, allowed: str) -> ApiError:
    paths = [route.path_format for route in app.routes if isinstance(route, APIRoute)]
    messages = {
        404: f"there is no such path; the paths are {', '.join(paths)}",
        405: f"this path does not take {method[:16]}, only {allowed or 'other methods'}",
    }
    headers = {"Allow": allowed} if allowed else {}
    return ApiError(status, messages.get(status, "not possible"), "no_route", headers=headers)


def _check_body(app: FastAPI, scope: Scope) -> None:
    """Refuse a body, unread, unless it belongs to a POST to a route that takes one."""
    found = {match: route for route in app.routes for match in [route.matches(scope)[0]]}
    if Match.FULL in found:
        if scope["method"] != "POST":
            raise ApiError(413, f"{scope['method'][:16]} of this path has no body", "request_too_large")
    elif isinstance(route := found.get(Match.PARTIAL), Route):
        raise _route_error(app, scope["method"], 405, ", ".join(sorted(route.methods or ())))
    else:
        raise _route_error(app, scope["method"], 404, "")
