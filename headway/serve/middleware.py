"""The ASGI middleware around the app: it checks every request before the app sees it.

The checks, in this order: headers, Host and Origin, API key, free capacity, whether the route takes a body, body.
No part of a body is kept before all other checks have passed. The middleware turns every error into a response in
OpenAI's shape, cancels the work of clients that disconnect, and writes one log line per request.
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

from headway.serve.context import Message, RequestContext, Send, ServerContext
from headway.serve.errors import ApiError, overloaded, stopping, stuck

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Drop = Callable[[], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PUBLIC = frozenset({"/health", "/", "/page.css", "/page.js", "/favicon.ico"})
"""Paths that need no key. The page at `/` shows the model only to who has it."""
MONITORING = PUBLIC | {"/metrics"}
"""Paths for monitoring, and the page. They take no body, and work when the server is overloaded or stopping."""
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HOST = re.compile(rb"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
ORIGIN = re.compile(rb"https?://" + HOST.pattern)
ABSOLUTE_URI = re.compile(rb"https?://([^/]+)(/.*)?", re.IGNORECASE | re.DOTALL)
"""The request target that clients send to a proxy: a whole URI instead of a path."""


class ClientDisconnected(Exception):
    """The client closed the connection."""


class Middleware:
    def __init__(self, app: App, server: ServerContext, check_body: Callable[[Scope], None]) -> None:
        """`check_body` raises an `ApiError` for a request whose route takes no body."""
        self.app, self.server, self.check_body = app, server, check_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"this server does not speak {scope['type']}")
        _normalize_target(scope)
        began, context = time.monotonic(), RequestContext(_request_id(scope["headers"]), self.server, send)
        scope["context"], body_read = context, False
        try:
            self._check(scope)
            counted = scope["path"] not in MONITORING
            self.server.open += counted
            try:
                body, body_read = await self._read_body(scope, receive), True
                await _run_until_disconnect(self.app, scope, body, receive, context)
            finally:
                self.server.open -= counted
        except ClientDisconnected:
            context.log_fields["gone"] = True
        except asyncio.CancelledError:
            if context.error is None:  # cancelled by someone else
                raise
            context.task.uncancel()
            await self._send_error(context.error, context, None if body_read else scope["drop"])
        except Exception as error:
            await self._send_error(error, context, None if body_read else scope["drop"])
        finally:
            context.end()
            self._log(scope, context, time.monotonic() - began)

    def _check(self, scope: Scope) -> None:
        """Check all that is known before the body arrives."""
        headers, limits = scope["headers"], self.server.limits
        if len(headers) > limits.headers:
            raise ApiError(431, f"{len(headers)} headers; the limit is {limits.headers}", "headers_too_large")
        size = sum(len(name) + len(value) + 4 for name, value in headers) + len(scope["raw_path"])
        size += len(scope["query_string"])
        if size > limits.header_bytes:
            message = f"{size:,} bytes of headers and path; the limit is {limits.header_bytes:,}"
            raise ApiError(431, message, "headers_too_large")
        if self.server.hosts:
            check_host_and_origin(headers, self.server.hosts)
        if scope["path"] not in PUBLIC:
            self._admit(scope)
        if content_length(headers) != 0:
            self.check_body(scope)

    def _admit(self, scope: Scope) -> None:
        """Check the key, and whether the server takes requests now."""
        server, limits = self.server, self.server.limits
        if not server.keys.accepts(scope["headers"]):
            message = "missing or wrong API key: send exactly one header `Authorization: Bearer KEY`"
            raise ApiError(401, message, "invalid_api_key", headers={"www-authenticate": "Bearer"})
        if scope["path"] in MONITORING:
            return
        if server.stopping:
            raise stopping()
        if why := server.model.stuck():
            raise stuck(why)
        if server.open >= limits.requests:
            raise overloaded(f"{limits.requests} requests are open")

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the body within the limits on its size and time."""
        limits, parts = self.server.limits, list[bytes]()
        size = content_length(scope["headers"]) or 0
        more = size <= limits.body_bytes
        try:
            async with asyncio.timeout(limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    parts.append(message.get("body", b""))
                    scope["context"].reserve_body(len(parts[-1]))
                    size = max(size, scope["context"].body_bytes)
                    more = message.get("more_body", False) and size <= limits.body_bytes
        except TimeoutError:
            late = f"the body was not complete after {limits.body_seconds:g} s"
            raise ApiError(408, late, "request_timeout") from None
        if size > limits.body_bytes:
            large = f"the body has {size:,} bytes or more; the limit is {limits.body_bytes:,}"
            raise ApiError(413, large, "request_too_large")
        return b"".join(parts)

    async def _send_error(self, error: Exception, context: RequestContext, drop: Drop | None) -> None:
        """Send an error. `drop` discards the rest of a body that was not read; the connection closes after it."""
        api_error = context.record_error(error)
        context.release_body()
        if context.complete:  # the app has sent the error
            return
        if context.status is not None:  # too late for another status: uvicorn closes the connection
            context.log_fields["cut"] = True
            return
        body = json.dumps(api_error.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **api_error.headers}
        if drop is not None:
            headers["connection"] = "close"
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await context.send({"type": "http.response.start", "status": api_error.status, "headers": raw})
        await context.send({"type": "http.response.body", "body": body, "more_body": True})
        if drop is not None:
            await drop()
        await context.send({"type": "http.response.body", "body": b""})

    def _log(self, scope: Scope, context: RequestContext, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")  # not the path itself, which the client chooses
        status = context.status or 499
        self.server.metrics.requests.labels(route, str(status)).inc()
        entry = {"id": context.id, "method": scope["method"][:16], "path": scope["path"][:100], "status": status}
        self.server.log({**entry, "seconds": round(seconds, 3), **context.log_fields})


async def _run_until_disconnect(app: App, scope: Scope, body: bytes, receive: Receive, context: RequestContext) -> None:
    """Run the app on a request. Cancel it when the client disconnects."""
    never, given = asyncio.Event(), [body]

    async def receive_body() -> Message:
        if not given:
            await never.wait()
        return {"type": "http.request", "body": given.pop(), "more_body": False}

    work = asyncio.ensure_future(app(scope, receive_body, context.send))
    watch = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not context.complete:
            raise ClientDisconnected
        await work
    finally:
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def content_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the length of the body from valid headers. None: a chunked body, whose length is not known yet."""
    found = dict(headers)
    return None if b"transfer-encoding" in found else int(found.get(b"content-length", b"0"))


def _normalize_target(scope: Scope) -> None:
    """Replace a target that is a whole URI by its path, and the Host header by the URI's host (RFC 9112, 3.2.2).

    All later checks see only the path and that one host, so a request cannot pass by naming two hosts.
    """
    if found := ABSOLUTE_URI.fullmatch(scope["raw_path"]):
        host, path = found[1], found[2] or b"/"
        scope["raw_path"], scope["path"] = path, unquote(path.decode("ascii"))
        scope["headers"] = [(b"host", host), *(pair for pair in scope["headers"] if pair[0] != b"host")]


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    given = dict(headers).get(b"x-request-id", b"")
    return given.decode() if REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def check_host_and_origin(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    """Stop web pages from calling a server on loopback, through a DNS name that points here or across origins."""
    called = [HOST.fullmatch(value) for name, value in headers if name == b"host"]
    if len(called) != 1 or _host_name(called[0]) not in hosts:
        raise ApiError(403, "the Host header names another server", "wrong_host")
    if any(_host_name(ORIGIN.fullmatch(value)) not in hosts for name, value in headers if name == b"origin"):
        raise ApiError(403, "web pages of other sites may not call this server", "wrong_origin")


def _host_name(found: re.Match[bytes] | None) -> str:
    return found[1].decode().lower() if found else ""
