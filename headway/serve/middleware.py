"""The one way in: an ASGI application around the app that lets a request pass only when all is well with it.

In this order: headers, Host and Origin, key, whether the server takes requests, whether the address takes a body, body.
Nothing is kept of a body before all the rest is well. Whatever happens behind it, the
gate answers in OpenAI's shape, ends the work of a client that has gone, and writes one line into the log.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import unquote

from headway.serve.context import RequestContext, ServerContext
from headway.serve.errors import ApiError, overloaded, stopping, stuck

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Drop = Callable[[], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PUBLIC = frozenset({"/health"})
"""Paths that need no key."""
MONITORING = PUBLIC | {"/metrics"}
"""Paths for whoever watches the server. They answer without a body and at once, also when it takes nothing else."""
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HOST = re.compile(rb"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
ORIGIN = re.compile(rb"https?://" + HOST.pattern)
ABSOLUTE_URI = re.compile(rb"https?://([^/]+)(/.*)?", re.IGNORECASE | re.DOTALL)
"""How a client speaks to a proxy: the whole address instead of its path."""
SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class ClientDisconnected(Exception):
    """The client has closed the connection."""


class Middleware:
    def __init__(self, app: App, server: ServerContext, bodies: Callable[[Scope], None]) -> None:
        """`bodies` raises a Problem where a request has a body that nobody would read."""
        self.app, self.server, self.bodies = app, server, bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"this server speaks no {scope['type']}")
        _normalize_target(scope)
        began, context = time.monotonic(), RequestContext(_request_id(scope["headers"]), self.server)
        writer, inside = ResponseWriter(send, context.id), False
        scope["context"] = context
        try:
            self._check(scope)
            counted = scope["path"] not in MONITORING
            self.server.open += counted
            try:
                body, inside = await self._read(scope, receive), True
                await _run_until_disconnect(self.app, scope, body, receive, writer)
            finally:
                self.server.open -= counted
        except ClientDisconnected:
            context.log_fields["gone"] = True
        except asyncio.CancelledError:
            if context.api_error is None:  # by somebody else
                raise
            context.task.uncancel()
            await self._refuse(context.api_error, context, writer, None if inside else scope["drop"])
        except Exception as error:
            await self._refuse(error, context, writer, None if inside else scope["drop"])
        finally:
            context.end()
            self._log(scope, context, writer, time.monotonic() - began)

    def _check(self, scope: Scope) -> None:
        """All that can be known before the body is there."""
        headers, limits, server = scope["headers"], self.server.limits, self.server
        if len(headers) > limits.headers:
            raise ApiError(431, f"{len(headers)} headers; the limit is {limits.headers}", "headers_too_large")
        size = sum(len(name) + len(value) + 4 for name, value in headers) + len(scope["raw_path"])
        size += len(scope["query_string"])
        if size > limits.header_bytes:
            message = f"headers and address of {size:,} bytes; the limit is {limits.header_bytes:,}"
            raise ApiError(431, message, "headers_too_large")
        if server.hosts:
            _check_host_and_origin(headers, server.hosts)
        if scope["path"] not in PUBLIC:
            self._authorize(scope)
        if _content_length(headers) != 0:
            self.bodies(scope)

    def _authorize(self, scope: Scope) -> None:
        server, limits = self.server, self.server.limits
        if not server.keys.accepts(scope["headers"]):
            message = "no key, or not the right one: send the header `Authorization: Bearer KEY`, once"
            raise ApiError(401, message, "invalid_api_key", headers={"www-authenticate": "Bearer"})
        if scope["path"] in MONITORING:
            return
        if server.stopping:
            raise stopping()
        if why := server.stuck():
            raise stuck(why)
        if server.open >= limits.requests:
            raise overloaded(f"{limits.requests} requests are open")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body: not more of it than may be, and not for longer than it may take."""
        limits, parts = self.server.limits, list[bytes]()
        size = _content_length(scope["headers"]) or 0
        more = size <= limits.body_bytes
        try:
            async with asyncio.timeout(limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    parts.append(message.get("body", b""))
                    scope["context"].reserve_body(len(parts[-1]))
                    size = max(size, scope["context"].body)
                    more = message.get("more_body", False) and size <= limits.body_bytes
        except TimeoutError:
            late = f"no complete body within {limits.body_seconds:g} s"
            raise ApiError(408, late, "request_timeout") from None
        if size > limits.body_bytes:
            large = f"a body of {size:,} bytes or more; the limit is {limits.body_bytes:,}"
            raise ApiError(413, large, "request_too_large")
        return b"".join(parts)

    async def _refuse(
        self, error: Exception, context: RequestContext, writer: ResponseWriter, drop: Drop | None
    ) -> None:
        """Tell the client; where its body was not read, `drop` forgets the rest of it."""
        api_error = context.record_error(error)
        context.release()
        if writer.complete:  # the app has told it already
            return
        if writer.status is not None:  # too late to say it otherwise: uvicorn closes the connection
            context.log_fields["cut"] = True
            return
        await writer.api_error(api_error, closing=drop is not None)
        if drop is not None:
            await drop()
        await writer.finish()

    def _log(self, scope: Scope, context: RequestContext, writer: ResponseWriter, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")  # the path itself is the client's choice
        status = writer.status or 499
        self.server.metrics.requests.labels(route, str(status)).inc()
        log_fields = {"method": scope["method"][:16], "path": scope["path"][:100], "status": status}
        self.server.log({"id": context.id, **log_fields, "seconds": round(seconds, 3), **context.log_fields})


class ResponseWriter:
    """The way back to the client: every answer carries the request's id; remembers how far it has come."""

    def __init__(self, send: Send, request: str) -> None:
        self.out, self.id = send, request.encode()
        self.status: int | None = None
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id), *SECURITY_HEADERS]
        await self.out(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def api_error(self, api_error: ApiError, *, closing: bool) -> None:
        body = json.dumps(api_error.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **api_error.headers}
        if closing:
            headers["connection"] = "close"
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": api_error.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})


async def _run_until_disconnect(app: App, scope: Scope, body: bytes, receive: Receive, writer: ResponseWriter) -> None:
    """The app's answer, for as long as somebody waits for it."""
    never, given = asyncio.Event(), [body]

    async def whole() -> Message:
        if not given:
            await never.wait()
        return {"type": "http.request", "body": given.pop(), "more_body": False}

    work = asyncio.ensure_future(app(scope, whole, writer.send))
    watch = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not writer.complete:
            raise ClientDisconnected
        await work
    finally:
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _content_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Bytes of the body by its headers, which have been read as HTTP; None where they will be known at its end."""
    found = dict(headers)
    return None if b"transfer-encoding" in found else int(found.get(b"content-length", b"0"))


def _normalize_target(scope: Scope) -> None:
    """Where a request names a whole address, take the path from it, and its host for the Host header (RFC 9112, 3.2.2).

    All that follows sees the path alone. The host is checked as if it were the header: nobody passes by naming two.
    """
    if found := ABSOLUTE_URI.fullmatch(scope["raw_path"]):
        host, path = found[1], found[2] or b"/"
        scope["raw_path"], scope["path"] = path, unquote(path.decode("ascii"))
        scope["headers"] = [(b"host", host), *(pair for pair in scope["headers"] if pair[0] != b"host")]


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    given = dict(headers).get(b"x-request-id", b"")
    return given.decode() if REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def _check_host_and_origin(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    """On loopback: a web page can send requests here, by a name of its own that points here, or across origins."""
    called = [HOST.fullmatch(value) for name, value in headers if name == b"host"]
    if len(called) != 1 or _name(called[0]) not in hosts:
        raise ApiError(403, "the Host header names another server", "wrong_host")
    if any(_name(ORIGIN.fullmatch(value)) not in hosts for name, value in headers if name == b"origin"):
        raise ApiError(403, "web pages of other sites may not call this server", "wrong_origin")


def _name(found: re.Match[bytes] | None) -> str:
    return found[1].decode().lower() if found else ""
