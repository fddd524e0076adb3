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

from headway.serve.context import State, Visit
from headway.serve.errors import Problem, overloaded, stopping, stuck

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Drop = Callable[[], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health"})
"""Paths that need no key."""
WATCHING = OPEN | {"/metrics"}
"""Paths for whoever watches the server. They answer without a body and at once, also when it takes nothing else."""
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
HOST = re.compile(rb"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
ORIGIN = re.compile(rb"https?://" + HOST.pattern)
ADDRESS = re.compile(rb"https?://([^/]+)(/.*)?", re.IGNORECASE | re.DOTALL)
"""How a client speaks to a proxy: the whole address instead of its path."""
ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Gone(Exception):
    """The client has closed the connection."""


class Gate:
    def __init__(self, app: App, state: State, bodies: Callable[[Scope], None]) -> None:
        """`bodies` raises a Problem where a request has a body that nobody would read."""
        self.app, self.state, self.bodies = app, state, bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"this server speaks no {scope['type']}")
        _as_path(scope)
        began, visit = time.monotonic(), Visit(_request_id(scope["headers"]), self.state)
        answer, inside = Answer(send, visit.id), False
        scope["visit"] = visit
        try:
            self._check(scope)
            counted = scope["path"] not in WATCHING
            self.state.open += counted
            try:
                body, inside = await self._read(scope, receive), True
                await _while_there(self.app, scope, body, receive, answer)
            finally:
                self.state.open -= counted
        except Gone:
            visit.facts["gone"] = True
        except asyncio.CancelledError:
            if visit.problem is None:  # by somebody else
                raise
            visit.task.uncancel()
            await self._refuse(visit.problem, visit, answer, None if inside else scope["drop"])
        except Exception as error:
            await self._refuse(error, visit, answer, None if inside else scope["drop"])
        finally:
            visit.end()
            self._note(scope, visit, answer, time.monotonic() - began)

    def _check(self, scope: Scope) -> None:
        """All that can be known before the body is there."""
        headers, limits, state = scope["headers"], self.state.limits, self.state
        if len(headers) > limits.headers:
            raise Problem(431, f"{len(headers)} headers; the limit is {limits.headers}", "headers_too_large")
        size = sum(len(name) + len(value) + 4 for name, value in headers) + len(scope["raw_path"])
        size += len(scope["query_string"])
        if size > limits.header_bytes:
            message = f"headers and address of {size:,} bytes; the limit is {limits.header_bytes:,}"
            raise Problem(431, message, "headers_too_large")
        if state.hosts:
            _check_caller(headers, state.hosts)
        if scope["path"] not in OPEN:
            self._admit(scope)
        if _declared(headers) != 0:
            self.bodies(scope)

    def _admit(self, scope: Scope) -> None:
        state, limits = self.state, self.state.limits
        if not state.keys.fit(scope["headers"]):
            message = "no key, or not the right one: send the header `Authorization: Bearer KEY`, once"
            raise Problem(401, message, "invalid_api_key", headers={"www-authenticate": "Bearer"})
        if scope["path"] in WATCHING:
            return
        if state.stopping:
            raise stopping()
        if why := state.stuck():
            raise stuck(why)
        if state.open >= limits.requests:
            raise overloaded(f"{limits.requests} requests are open")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The body: not more of it than may be, and not for longer than it may take."""
        limits, parts = self.state.limits, list[bytes]()
        size = _declared(scope["headers"]) or 0
        more = size <= limits.body_bytes
        try:
            async with asyncio.timeout(limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    parts.append(message.get("body", b""))
                    scope["visit"].keep(len(parts[-1]))
                    size = max(size, scope["visit"].body)
                    more = message.get("more_body", False) and size <= limits.body_bytes
        except TimeoutError:
            late = f"no complete body within {limits.body_seconds:g} s"
            raise Problem(408, late, "request_timeout") from None
        if size > limits.body_bytes:
            large = f"a body of {size:,} bytes or more; the limit is {limits.body_bytes:,}"
            raise Problem(413, large, "request_too_large")
        return b"".join(parts)

    async def _refuse(self, error: Exception, visit: Visit, answer: Answer, drop: Drop | None) -> None:
        """Tell the client; where its body was not read, `drop` forgets the rest of it."""
        problem = visit.note(error)
        visit.release()
        if answer.complete:  # the app has told it already
            return
        if answer.status is not None:  # too late to say it otherwise: uvicorn closes the connection
            visit.facts["cut"] = True
            return
        await answer.problem(problem, closing=drop is not None)
        if drop is not None:
            await drop()
        await answer.finish()

    def _note(self, scope: Scope, visit: Visit, answer: Answer, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")  # the path itself is the client's choice
        status = answer.status or 499
        self.state.metrics.requests.labels(route, str(status)).inc()
        facts = {"method": scope["method"][:16], "path": scope["path"][:100], "status": status}
        self.state.log({"id": visit.id, **facts, "seconds": round(seconds, 3), **visit.facts})


class Answer:
    """The way back to the client: every answer carries the request's id; remembers how far it has come."""

    def __init__(self, send: Send, request: str) -> None:
        self.out, self.id = send, request.encode()
        self.status: int | None = None
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id), *ALWAYS]
        await self.out(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def problem(self, problem: Problem, *, closing: bool) -> None:
        body = json.dumps(problem.body()).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **problem.headers}
        if closing:
            headers["connection"] = "close"
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def finish(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})


async def _while_there(app: App, scope: Scope, body: bytes, receive: Receive, answer: Answer) -> None:
    """The app's answer, for as long as somebody waits for it."""
    never, given = asyncio.Event(), [body]

    async def whole() -> Message:
        if not given:
            await never.wait()
        return {"type": "http.request", "body": given.pop(), "more_body": False}

    work = asyncio.ensure_future(app(scope, whole, answer.send))
    watch = asyncio.ensure_future(_leave(receive))
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not answer.complete:
            raise Gone
        await work
    finally:
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _declared(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Bytes of the body by its headers, which have been read as HTTP; None where they will be known at its end."""
    found = dict(headers)
    return None if b"transfer-encoding" in found else int(found.get(b"content-length", b"0"))


def _as_path(scope: Scope) -> None:
    """Where a request names a whole address, take the path from it, and its host for the Host header (RFC 9112, 3.2.2).

    All that follows sees the path alone. The host is checked as if it were the header: nobody passes by naming two.
    """
    if found := ADDRESS.fullmatch(scope["raw_path"]):
        host, path = found[1], found[2] or b"/"
        scope["raw_path"], scope["path"] = path, unquote(path.decode("ascii"))
        scope["headers"] = [(b"host", host), *(pair for pair in scope["headers"] if pair[0] != b"host")]


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    given = dict(headers).get(b"x-request-id", b"")
    return given.decode() if REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def _check_caller(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    """On loopback: a web page can send requests here, by a name of its own that points here, or across origins."""
    called = [HOST.fullmatch(value) for name, value in headers if name == b"host"]
    if len(called) != 1 or _name(called[0]) not in hosts:
        raise Problem(403, "the Host header names another server", "wrong_host")
    if any(_name(ORIGIN.fullmatch(value)) not in hosts for name, value in headers if name == b"origin"):
        raise Problem(403, "web pages of other sites may not call this server", "wrong_origin")


def _name(found: re.Match[bytes] | None) -> str:
    return found[1].decode().lower() if found else ""
