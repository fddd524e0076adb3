"""uvicorn with deadlines for its connections, and an end in two stages.

On the first signal the server takes no more requests but still listens, so that whoever asks is told; answers that are
being written go on until `drain_seconds` are over and are then ended with an error that says so. A second signal ends
the process at once.
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

from headway.serve.app import check_body, create_app
from headway.serve.auth import Keys, is_loopback, loopback_names
from headway.serve.context import ServerContext
from headway.serve.errors import ApiError, stopping, stuck
from headway.serve.limits import Limits
from headway.serve.metrics import Log, Metrics
from headway.serve.middleware import Middleware
from headway.serve.service import ServedModel

SWEEP = 0.5
"""Seconds between two looks for overdue connections."""
GRACE = 1.0
"""Seconds for the last words of answers that were ended, and again for connections to close."""


LINGER = 1.0
"""Seconds in which what a refused client is still sending is forgotten."""
CLOSE = 2.0
"""Seconds for threads to end, when nobody waits for what they do."""


PROBES = (0.25, 1.0, 8.0, 30.0)
"""Seconds after a client has closed its side when it is sent a word to find out whether it is still there. Not at once:
a short answer then comes alone, which clients that know little HTTP expect."""


class Connection(H11Protocol):
    """uvicorn waits for ever for headers, and for a client that does not read its answer.

    The server asks each connection now and then whether it is `overdue`, and ends those that are.

    To uvicorn, a client that has closed its side has left. But it may have closed only that, and wait for its answer:
    TCP tells the two apart only when something is sent, to which a client that has left answers with a reset.
    """

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
        self.left = asyncio.Event()
        """Set once nothing more can come from the client."""
        self.dropping = False
        """Whether what comes is forgotten unread: it would take seconds to parse hundreds of large bodies."""
        self.ended: float | None = None
        """When the client closed its side, with its answer still to come."""

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
        """Forget the rest of a body, for a moment: closed at once, who is still sending might not see the answer."""
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
        if self.ended is not None and not self._responding():  # nor is another request here already
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to leave the connection open: where a whole request is being answered."""
        self.left.set()
        if self.refused or not self._responding() or self.cycle.more_body:
            return False
        if self.ended is None:
            self.ended = time.monotonic()
            self._probe(0)
        return True

    def _probe(self, sent: int) -> None:
        """Find out whether a client that has closed its side is still there; `sent` words were sent for that.

        The word is `100 Continue`, which a client passes over before its answer. In a stream, tokens serve as well.
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
        """Called by uvicorn while it handles h11's error, which knows when it is headers that are too large."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        if hint == 431:
            self._refuse(ApiError(431, f"headers of more than {self.limits.header_bytes:,} bytes", "headers_too_large"))
        else:
            self._refuse(ApiError(400, "this is not HTTP", "bad_http"))

    def _refuse(self, api_error: ApiError) -> None:
        """Answer without the app, and close: soon, as who is still sending might not see why otherwise."""
        self.refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(api_error.body()).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            reason = STATUS_PHRASES[api_error.status]
            for event in (
                h11.Response(status_code=api_error.status, headers=headers, reason=reason),
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


class Server(Uvicorn):
    def __init__(
        self,
        middleware: Middleware,
        context: ServerContext,
        ready: Callable[[], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`ready` is called once clients can connect; `say` is told when answers are waited for at the end."""
        limits = context.limits
        config = Config(
            middleware,
            http=partial(Connection, limits=limits),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # the gate's log has all there is to say
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
        """The first one that came."""
        self.deadline = float("inf")
        self.swept = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.ready is not None:
            self.ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does it, but signals are not raised again afterwards: the caller has an exit code for them."""
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
        answers = "an answer is" if count == 1 else f"{count} answers are"
        return f"stopping once {answers} finished, or in {most:g} s; a second signal stops at once"

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        if self.context.stopping and self.context.open and self.say is not None:
            self.say(self._drain_message())
            self.say = None
        if now - self.swept > SWEEP:
            self.swept = now
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection) and connection.overdue(now):
                    connection.transport.abort()
        if why := self.context.stuck():
            for request in list(self.context.running):
                request.fail(stuck(why))
        if now > self.deadline:
            for request in list(self.context.running):
                request.fail(stopping())
        if self.context.stopping and (not self.context.open or now > self.deadline + GRACE):
            self.should_exit = True
        return await super().on_tick(counter)


def build(
    served: ServedModel, limits: Limits, keys: Sequence[str], sock: socket.socket, log: Log
) -> tuple[Middleware, ServerContext]:
    hosts = loopback_names(sock) if is_loopback(sock) else frozenset[str]()
    context = ServerContext(limits, Keys(keys), Metrics(), log, hosts, served.stuck)
    context.metrics.add_gauges(served.gauges() | {"requests_open": ("requests being answered", lambda: context.open)})
    app = create_app(served, context)
    return Middleware(app, context, partial(check_body, app)), context


def serve(
    served: ServedModel,
    sock: socket.socket,
    keys: Sequence[str],
    limits: Limits,
    *,
    log: Log,
    ready: Callable[[], None],
    say: Callable[[str], None],
) -> int:
    """Serve until a signal comes, and return its number. `ready` is called once clients can connect."""
    middleware, context = build(served, limits, keys, sock, log)
    server = Server(middleware, context, ready, say)
    served.start()
    try:
        server.run([sock])
    finally:
        ended = _close_all((lambda: context.pool.shutdown(cancel_futures=True), served.close), CLOSE)
    if not ended:
        say("stopped, though some work had not ended")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(128 + server.signal)  # Python would wait for these threads, perhaps for ever
    return server.signal


def _close_all(closing: Sequence[Callable[[], None]], seconds: float) -> bool:
    """Whether all that is to be closed is closed in this time."""
    threads = [threading.Thread(target=close, name="headway-close", daemon=True) for close in closing]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
