"""The app of the studio: the JSON of its pages under /api, and the files of the page itself.

Each page has a module in `routes` with a function `router(studio)`, and a module in `files/pages`. A route is a plain
function: FastAPI runs it in a thread. It raises a `HeadwayError` for what a user can mend.
"""

from __future__ import annotations

import logging
import traceback
from functools import cache
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from headway.errors import HeadwayError, NotFoundError
from headway.report.page import script_text
from headway.resources import as_headway_error
from headway.serve.errors import ApiError
from headway.studio.context import Studio
from headway.studio.guard import Guard
from headway.studio.routes import compare, data, learn, new, playground, run, runs, tokens, xray
from headway.version import __version__

FILES = Path(__file__).with_name("files")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATUS = {3: 400, 4: 400, 5: 404, 6: 502, 7: 507, 8: 409, 9: 409}
"""Exit code of an error → HTTP status."""
ROUTERS = tuple(page.router for page in (runs, run, compare, new, data, playground, xray, tokens, learn))
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
    if name == "chart.js":  # the one chart module, which reports hold too
        return script_text().encode()
    return (FILES / name).read_bytes() if name in _known() else None


async def _failed(request: Request, error: Exception) -> Response:
    """Any error in the shape that the page shows: code, message, what to do."""
    found = as_headway_error(error) or error
    status, code, message, hint = 500, "B000", "the studio failed on this request; its terminal shows why", ""
    if isinstance(found, HeadwayError):
        status, code, message, hint = STATUS.get(found.exit_code, 500), found.code, found.message, found.hint
    elif isinstance(found, ApiError):
        status, code, message = found.status, found.code, found.message
    elif isinstance(found, RequestValidationError):
        first = found.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        status, code, message = 400, "C002", f"{place}: {first['msg']}" if place else str(first["msg"])
    elif isinstance(found, HTTPException):
        status, code, message = found.status_code, "F001", str(found.detail)
    else:
        logging.getLogger("headway").error("%s", "".join(traceback.format_exception(error)))
    return JSONResponse({"error": {"code": code, "message": message, "hint": hint}}, status)
