"""Errors as pages show them: a status of HTTP, and code, message and what to do."""

from __future__ import annotations

import logging
import traceback

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from headway.errors import HeadwayError
from headway.resources import as_headway_error
from headway.serve.errors import ApiError

STATUS = {2: 400, 3: 400, 4: 400, 5: 404, 6: 502, 7: 507, 8: 409, 9: 409}
"""Exit code of an error → HTTP status."""


def described(error: Exception) -> tuple[int, dict[str, str]]:
    """The status of any error, and its facts. One that nobody expected is written to the log."""
    found = as_headway_error(error) or error
    if isinstance(found, HeadwayError):
        return STATUS.get(found.exit_code, 500), _facts(found.code, found.message, found.hint)
    if isinstance(found, ApiError):
        return found.status, _facts(found.code, found.message)
    if isinstance(found, RequestValidationError):
        first = found.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return 400, _facts("C002", f"{place}: {first['msg']}" if place else str(first["msg"]))
    if isinstance(found, HTTPException):
        return found.status_code, _facts("F001", str(found.detail))
    logging.getLogger("headway").error("%s", "".join(traceback.format_exception(error)))
    return 500, _facts("B000", "the studio failed on this request; its terminal shows why")


def _facts(code: str, message: str, hint: str = "") -> dict[str, str]:
    return {"code": code, "message": message, "hint": hint}
