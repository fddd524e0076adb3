"""The middleware of the studio: Host, Origin, token and size are checked before a route sees a request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from headway.serve.errors import ApiError
from headway.serve.middleware import check_host_and_origin, content_length
from headway.studio.token import accepts, is_signed

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_BYTES = 64 << 20
"""The most bytes of a request: images, sounds and tables that a person tries."""
SECURITY = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every response, where a route does not set its own."""


class Guard:
    """Refuses what does not come from the studio's own page on this machine."""

    def __init__(self, app: App, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the studio does not speak {scope['type']}")
        try:
            self._check(scope)
        except ApiError as error:
            await _refuse(error, send)
            return
        await self.app(scope, _bounded(receive), _with_headers(send))

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        check_host_and_origin(headers, self.hosts)
        if (content_length(headers) or 0) > BODY_BYTES:
            raise ApiError(413, f"the body has more than {BODY_BYTES:,} bytes", "request_too_large")
        if not scope["path"].startswith("/api/"):
            return  # the page itself holds nothing: it asks for all it shows
        signed = scope["method"] == "GET" and is_signed(
            self.token, scope["path"], scope["query_string"].decode("latin-1")
        )
        if not signed and not accepts(self.token, headers):
            raise ApiError(401, "missing or wrong token: open the address that `headway studio` printed", "wrong_token")


def _bounded(receive: Receive) -> Receive:
    """The body of a request without a length may not grow over the limit either."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES:
            raise ApiError(413, f"the body has more than {BODY_BYTES:,} bytes", "request_too_large")
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in SECURITY if pair[0] not in named)]
        await send(message)

    return with_headers


async def _refuse(error: ApiError, send: Send) -> None:
    body = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *SECURITY]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
