"""The app of the studio: the JSON of its pages under /api, and the files of the page itself.

Each page has a module in `routes` with a function `router(studio)`, and a module in `files/pages`. A route is a plain
function: FastAPI runs it in a thread. It raises a `HeadwayError` for what a user can mend.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from headway.errors import HeadwayError, NotFoundError
from headway.report.page import script_text, style_text
from headway.serve.errors import ApiError
from headway.studio.context import Studio
from headway.studio.errors import described
from headway.studio.guard import Guard
from headway.studio.routes import compare, data, learn, new, playground, run, runs, tokens, xray
from headway.version import __version__

FILES = Path(__file__).with_name("files")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
SHARED = {"chart.js": script_text, "chart.css": style_text}
"""The charts, which reports hold too."""
ROUTERS = (
    *(runs.router, run.router, compare.router, new.router, data.router),
    *(playground.router, xray.router, tokens.router, learn.router),
)
"""One for each page."""


def create_app(studio: Studio, hosts: frozenset[str]) -> Guard:
    """Build the ASGI application: routes inside the guard."""
    app = FastAPI(title="headway studio", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    for router in ROUTERS:
        app.include_router(router(studio))
    app.include_router(_files())
    for kind in (HeadwayError, ApiError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _failed)
    return Guard(app, studio.token, hosts)


def _files() -> APIRouter:
    """The files of the page. Every other path is the page, which reads in the address what to show."""
    router = APIRouter()

    @router.get("/files/{name:path}")
    def file(name: str) -> Response:
        if (content := _read(name)) is None:
            raise NotFoundError("F001", f"the studio has no file {name[:100]}")
        return Response(content, media_type=TYPES[Path(name).suffix])

    @router.get("/api/{path:path}", include_in_schema=False)
    def unknown(path: str) -> Response:
        raise NotFoundError("F001", f"the studio has no route /api/{path[:100]}")

    @router.get("/{path:path}")
    def page(path: str) -> Response:
        return Response(_read("index.html"), media_type="text/html")

    return router


@cache
def _known() -> frozenset[str]:
    """The files that may be asked for; no path of a request ever reaches the disk."""
    return frozenset(path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.suffix in TYPES)


def _read(name: str) -> bytes | None:
    if name in SHARED:
        return SHARED[name]().encode()
    return (FILES / name).read_bytes() if name in _known() else None


async def _failed(request: Request, error: Exception) -> Response:
    """Any error in the shape that the page shows: code, message, what to do."""
    status, facts = described(error)
    return JSONResponse({"error": facts}, status)
