"""uvicorn with deadlines for its connections, and an end in two stages.

On the first signal the server takes no more requests but still listens, so that whoever asks is told; answers that are
being written go on until `drain_seconds` are over and are then ended with an error that says so. A second signal ends
the process at once.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from uvicorn import Config
from uvicorn import Server as Uvicorn

from headway.serve.connection import Connection
from headway.serve.gate import Gate
from headway.serve.problems import stopping
from headway.serve.state import State

SWEEP = 0.5
"""Seconds between two looks for overdue connections."""
GRACE = 1.0
"""Seconds for the last words of answers that were ended, and again for connections to close."""


class Server(Uvicorn):
    def __init__(self, gate: Gate, state: State, ready: Callable[[], None] | None = None) -> None:
        limits = state.limits
        config = Config(
            gate,
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
        self.state, self.ready = state, ready
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
        self.state.stopping = True
        self.deadline = time.monotonic() + self.state.limits.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        if now - self.swept > SWEEP:
            self.swept = now
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection) and connection.overdue(now):
                    connection.transport.abort()
        if now > self.deadline:
            for work in list(self.state.running):
                work.fail(stopping())
        if self.state.stopping and (not self.state.open or now > self.deadline + GRACE):
            self.should_exit = True
        return await super().on_tick(counter)
