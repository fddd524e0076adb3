"""A connection with deadlines: uvicorn waits for ever for headers, and for a client that does not read its answer."""

from __future__ import annotations

import json
import sys
import time
from asyncio import Transport
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from headway.serve.gate import LINGER
from headway.serve.limits import Limits
from headway.serve.problems import Problem


class Connection(H11Protocol):
    """The server asks each connection now and then whether it is `overdue`, and ends those that are."""

    def __init__(self, *arguments: Any, limits: Limits, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.limits = limits
        self.reading: float | None = None
        """Since when a request, or the unread rest of one that is answered, has been coming in."""
        self.stalled: float | None = None
        """Since when the client has taken nothing of what waits for it."""
        self.waiting = 0
        """Bytes of that, when last seen."""
        self.refused = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.reading = time.monotonic()
        if len(self.connections) > self.limits.connections:
            self._refuse(Problem(503, f"{self.limits.connections} connections are open", "too_many_connections"))

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        if self.reading is None and not self._answering():
            self.reading = time.monotonic()
        super().data_received(data)
        if self._answering():
            self.reading = None

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        self.reading = None
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn while it handles h11's error, which knows when it is headers that are too large."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == 431:
            self._refuse(Problem(431, f"headers of more than {self.limits.header_bytes:,} bytes", "headers_too_large"))
        else:
            self._refuse(Problem(400, "this is not HTTP", "bad_http"))

    def _refuse(self, problem: Problem) -> None:
        """Answer without the app, and close: soon, as who is still sending might not see why otherwise."""
        self.refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(problem.body()).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            reason = STATUS_PHRASES[problem.status]
            for event in (
                h11.Response(status_code=problem.status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.write_eof()
            self.loop.call_later(LINGER, self.transport.close)
        else:  # an answer has begun: there is no other way to say it
            self.transport.close()

    def overdue(self, now: float) -> bool:
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self.waiting:
            self.stalled = None
        if waiting and self.stalled is None:
            self.stalled = now
        self.waiting = waiting
        late = self.reading is not None and now - self.reading > self.limits.header_seconds
        return late or (self.stalled is not None and now - self.stalled > self.limits.stall_seconds)
