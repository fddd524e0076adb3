"""The HTTP server: uvicorn with timeouts for every connection, and a shutdown in two stages.

After the first signal, the server takes no new requests, but it still listens and answers them with an error. Open
requests go on for up to `drain_seconds`; then they end with an error. A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from asyncio import Transport
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import h11
from uvicorn import Config
from uvicorn import Server as Uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from headway.serve.app import create_app
from headway.serve.auth import Keys, is_loopback, loopback_names
from headway.serve.context import ServedModel, ServerContext
from headway.serve.errors import ApiError, stopping, stuck
from headway.serve.limits import Limits
from headway.serve.metrics import Log

SWEEP = 0.5
"""Seconds between two checks for overdue connections."""
GRACE = 1.0
"""Seconds to send the errors of requests that were ended, and again to close their connections."""
LINGER = 1.0
"""Seconds in which the server still discards what a refused client sends, before it closes the connection."""
CLOSE = 2.0
"""Seconds for threads to end when the server stops."""
PROBES = (0.25, 1.0, 8.0, 30.0)
"""Seconds after a client has shut down its sending side at which it gets a probe. Not at once: simple clients may not
expect a `100 Continue`, and most responses are complete before the first probe."""


class Connection(H11Protocol):
    """A connection with timeouts, which uvicorn does not have for headers and for clients that do not read.

    The server calls `overdue` at intervals and aborts the connections that are.

    uvicorn takes a client that has shut down its sending side for a client that has disconnected. But the client may
    wait for its response. TCP tells the two cases apart only after the server sends something: a client that has
    disconnected answers with a reset.
    """

    def __init__(self, *arguments: Any, limits: Limits, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.limits = limits
        self.reading: float | None = None
        """When a request began to arrive, or the unread rest of a request that has its response."""
        self.stalled: float | None = None
        """Since when the client has read nothing of what is buffered for it."""
        self.waiting = 0
        """Bytes that were buffered for the client at the last check."""
        self.refused = False
        self.left = asyncio.Event()
        """Set once the client can send nothing more."""
        self.dropping = False
        """Whether incoming data is discarded unparsed: parsing hundreds of large bodies would take seconds."""
        self.ended: float | None = None
        """When the client shut down its sending side while its request was open."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.reading = time.monotonic()
        if len(self.connections) > self.limits.connections:
            self._refuse(ApiError(503, f"{self.limits.connections} connections are open", "too_many_connections"))

    def data_received(self, data: bytes) -> None:
        if self.refused or self.dropping:
            return
        if self.reading is None and not self._responding():
            self.reading = time.monotonic()
        super().data_received(data)
        if self._responding():
            self.reading = None

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # the request's task has not begun yet
            self.scope["drop"] = self.drop  # type: ignore[typeddict-unknown-key]

    async def drop(self) -> None:
        """Discard the rest of a body for a moment: a client that is reset while it sends may miss the response."""
        self.cycle.body.clear()
        if self.cycle.more_body and not self.transport.is_closing():
            self.dropping = True
            self.flow.resume_reading()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.left.wait(), LINGER)

    def connection_lost(self, exc: Exception | None) -> None:
        self.left.set()
        super().connection_lost(exc)

    def _responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        self.reading = None
        super().on_response_complete()
        if self.ended is not None and not self._responding():  # no further request is pipelined
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open: it does for a complete request that has no response yet."""
        self.left.set()
        if self.refused or not self._responding() or self.cycle.more_body:
            return False
        if self.ended is None:
            self.ended = time.monotonic()
            self._probe(0)
        return True

    def _probe(self, sent: int) -> None:
        """Find out whether a client that shut down its sending side is still there, after `sent` probes.

        A probe is a `100 Continue`, which clients skip before the response. In a stream, the tokens serve as well.
        """
        if self.transport.is_closing() or not self._responding():
            return
        assert self.ended is not None
        waited, begun = time.monotonic() - self.ended, self.cycle.response_started
        error = self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error or (not begun and waited > self.limits.eof_seconds):
            self.transport.abort()
            return
        if not begun and sent < len(PROBES) and waited > PROBES[sent] and self.scope["http_version"] == "1.1":
            event = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(event))
            sent += 1
        self.loop.call_later(min(0.25, max(0.01, waited / 4)), self._probe, sent)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that h11 cannot parse. Its error has a hint for headers that are too large."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == 431:
            message = f"the headers have more than {self.limits.header_bytes:,} bytes"
            self._refuse(ApiError(431, message, "headers_too_large"))
        else:
            self._refuse(ApiError(400, "this is not a valid HTTP request", "bad_http"))

    def _refuse(self, error: ApiError) -> None:
        """Send an error without the app, and close the connection after LINGER seconds."""
        self.refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error.body()).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            reason = STATUS_PHRASES[error.status]
            for event in (
                h11.Response(status_code=error.status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.write_eof()
            self.loop.call_later(LINGER, self.transport.close)
        else:  # a response has begun, so it is too late for an error
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


class Server(Uvicorn):
    def __init__(
        self,
        context: ServerContext,
        ready: Callable[[], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`ready` is called once clients can connect; `say` gets a message when the shutdown waits for requests."""
        limits = context.limits
        config = Config(
            create_app(context),
            http=partial(Connection, limits=limits),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # the middleware logs every request
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=limits.header_bytes,
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
            timeout_graceful_shutdown=GRACE,  # type: ignore[arg-type]
        )
        super().__init__(config)
        self.context, self.ready, self.say = context, ready, say
        self.signal = 0
        """The first signal that came."""
        self.deadline = float("inf")
        self.swept = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.ready is not None:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, but do not raise them again: the caller has an exit code for them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.signal:
            os._exit(128 + sig)
        self.signal = sig
        self.drain()

    def drain(self) -> None:
        self.context.stopping = True
        self.deadline = time.monotonic() + self.context.limits.drain_seconds

    def _drain_message(self) -> str:
        count, most = self.context.open, self.context.limits.drain_seconds
        requests = "1 open request" if count == 1 else f"{count} open requests"
        return f"stopping: waiting up to {most:g} s for {requests}; a second signal stops at once"

    async def on_tick(self, counter: int) -> bool:
        now, context = time.monotonic(), self.context
        if context.stopping and context.open and self.say is not None:
            self.say(self._drain_message())
            self.say = None
        if now - self.swept > SWEEP:
            self.swept = now
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection) and connection.overdue(now):
                    connection.transport.abort()
        why = context.model.stuck()
        if why or now > self.deadline:
            for request in list(context.running):
                request.fail(stuck(why) if why else stopping())
        if context.stopping and (not context.open or now > self.deadline + GRACE):
            self.should_exit = True
        return await super().on_tick(counter)


def make_context(model: ServedModel, sock: socket.socket, keys: Sequence[str], log: Log) -> ServerContext:
    hosts = loopback_names(sock) if is_loopback(sock) else frozenset[str]()
    return ServerContext(model, Keys(keys), log, hosts)


def serve(
    model: ServedModel,
    sock: socket.socket,
    keys: Sequence[str],
    *,
    log: Log,
    ready: Callable[[], None],
    say: Callable[[str], None],
) -> int:
    """Serve until a signal comes, and return its number. `ready` is called once clients can connect."""
    context = make_context(model, sock, keys, log)
    server = Server(context, ready, say)
    model.start()
    try:
        server.run([sock])
    finally:
        closed = _close_all((lambda: context.pool.shutdown(cancel_futures=True), model.close), CLOSE)
    if not closed:
        say("stopped before all threads had ended")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(128 + server.signal)  # Python would wait for these threads, perhaps for ever
    return server.signal


def _close_all(closing: Sequence[Callable[[], None]], seconds: float) -> bool:
    """Call all functions, each in a thread, and return whether they ended in time."""
    threads = [threading.Thread(target=close, name="headway-close", daemon=True) for close in closing]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
