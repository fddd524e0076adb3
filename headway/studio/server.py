"""The HTTP server of the studio: uvicorn on a loopback address, until a signal comes."""

from __future__ import annotations

import socket
from collections.abc import Callable

from uvicorn import Config, Server

from headway.serve.auth import loopback_names
from headway.studio.app import create_app
from headway.studio.context import Studio

GRACE = 1
"""Seconds for open requests to end: streams of events never would."""


class StudioServer(Server):
    """Says when it listens."""

    def __init__(self, config: Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()


def serve(studio: Studio, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until a signal comes. `ready` is called once a browser can connect."""
    config = Config(
        create_app(studio, loopback_names(sock)),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    try:
        StudioServer(config, ready).run([sock])
    finally:
        studio.close()
