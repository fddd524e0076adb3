"""A server from its parts: a model, an address, keys, limits."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

from headway.serve.address import KEY, is_loopback, names, url
from headway.serve.app import create_app
from headway.serve.gate import Gate
from headway.serve.limits import Limits
from headway.serve.metrics import Metrics
from headway.serve.server import Server
from headway.serve.service import Bundle, Service
from headway.serve.state import Keys, Log, State

SAMPLE: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}),
    "complete": ("/v1/completions", {"prompt": "Hello", "max_tokens": 50}),
    "embed": ("/v1/embeddings", {"input": "Hello"}),
    "classify": ("/v1/run", {"input": "Hello"}),
}
"""What a model can do → a request for it, to be tried first."""
SNIPPETS = {
    "chat": 'chat.completions.create(model="{}", messages=[{{"role": "user", "content": "Hello"}}])',
    "complete": 'completions.create(model="{}", prompt="Hello")',
    "embed": 'embeddings.create(model="{}", input="Hello")',
}


def build(service: Service, limits: Limits, keys: Sequence[str], sock: socket.socket, log: Log) -> tuple[Gate, State]:
    hosts = names(sock) if is_loopback(sock) else frozenset[str]()
    state = State(limits, Keys(keys), Metrics(), log, hosts)
    state.metrics.watch(service.gauges() | {"requests_open": ("requests being answered", lambda: state.open)})
    return Gate(create_app(service, state), state), state


def serve(
    bundle: Bundle,
    sock: socket.socket,
    keys: Sequence[str],
    limits: Limits,
    *,
    log: Log,
    name: str = "",
    ready: Callable[[Service], None],
) -> int:
    """Serve until a signal comes, and return its number. `ready` is called once clients can connect."""
    service = Service(bundle, limits, name)
    gate, state = build(service, limits, keys, sock, log)
    server = Server(gate, state, lambda: ready(service))
    service.start()
    try:
        server.run([sock])
    finally:
        state.pool.shutdown(wait=False, cancel_futures=True)
        service.close()
    return server.signal


def greeting(service: Service, sock: socket.socket, auth: str) -> list[str]:
    """Where the server is, and two ways to ask it. `auth` is what a shell makes the key of; empty without one."""
    first, address = service.can()[0], url(sock)
    path, body = SAMPLE[first]
    data = json.dumps({"model": service.id, **body}).replace("'", "\\u0027")
    key = f' -H "Authorization: Bearer {auth}"' if auth else ""
    lines = [
        f"{service.id} on {address}/v1 ({', '.join(service.can())})",
        f"  curl {address}{path} -H 'Content-Type: application/json'{key} -d '{data}'",
    ]
    if first in SNIPPETS:
        call = SNIPPETS[first].format(service.id)
        secret = f'os.environ["{KEY}"]' if auth else '"none"'
        lines.append(f"  python: {'import os; ' if auth else ''}from openai import OpenAI")
        lines.append(f'    client = OpenAI(base_url="{address}/v1", api_key={secret})')
        lines.append(f"    print(client.{call})")
    return lines
