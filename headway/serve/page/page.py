"""Renders the page at `/`: what is served, how to call it, and a form to try it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fastapi.responses import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headway.serve.auth import KEY
from headway.serve.context import ServerContext
from headway.serve.middleware import HOST
from headway.serve.page.examples import examples
from headway.version import __version__

FILES = Path(__file__).with_name("files")
STATIC = {
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/favicon.ico": ("favicon.svg", "image/svg+xml"),
}
"""Path → a file of the page, and its type."""
SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
TITLES = {
    "chat": "chat",
    "complete": "continue a text",
    "embed": "turn texts into vectors",
}
"""Capability → what it means; others are named like their task."""


@cache
def _environment() -> Environment:
    """The template; all values are escaped."""
    return Environment(
        loader=FileSystemLoader(FILES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def static_file(path: str) -> Response:
    name, kind = STATIC[path]
    return Response((FILES / name).read_bytes(), media_type=kind, headers=SECURITY)


def page(server: ServerContext, headers: Iterable[tuple[bytes, bytes]]) -> Response:
    """The page for a request with these headers. Without the key it only explains that a key is needed."""
    headers = list(headers)
    values: dict[str, Any] = {"version": __version__, "keyed": bool(server.keys), "variable": KEY}
    values["locked"] = not server.keys.accepts(headers)
    if not values["locked"]:
        values |= _facts(server, _origin(headers))
    text = _environment().get_template("page.html").render(values)
    return Response(text, media_type="text/html", headers=SECURITY)


def _origin(headers: list[tuple[bytes, bytes]]) -> str:
    """The address that the browser used. Anything but a plain host name would be a trap for who pastes the lines."""
    host = dict(headers).get(b"host", b"")
    return f"http://{host.decode() if HOST.fullmatch(host) else 'localhost'}"


def _facts(server: ServerContext, url: str) -> dict[str, Any]:
    served, keyed = server.model, bool(server.keys)
    shown = [
        {
            "name": each.capability,
            "title": TITLES.get(each.capability, each.capability),
            "path": each.path,
            "curl": each.curl(url, f"${KEY}" if keyed else ""),
            "python": "\n".join(each.python(url, auth=keyed)),
        }
        for each in examples(served)
    ]
    card, tools = served.card(), False
    if "chat" in card["can"] and served.requests is not None:
        tools = served.requests.conversations.form is not None
    forms = [
        {"name": each.capability, "path": each.path, "body": each.body, "second": _second(server, each.capability)}
        for each in examples(served)
    ]
    return {
        "model": served.id,
        "context": card["context"],
        "examples": shown,
        "tools": tools,
        "facts": {"model": served.id, "forms": forms},
        "limits": server.limits.table(),
    }


def _second(server: ServerContext, name: str) -> str:
    """The name of the second text that a task takes; empty: none."""
    task = server.model.tasks.tasks.get(name)
    if task is None or task.wants_second(server.model.tasks.bundle.model.config) is False:
        return ""
    return task.second or ""
