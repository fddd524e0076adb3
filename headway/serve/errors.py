"""Errors of the HTTP API: a status, headers, and a body in OpenAI's shape.

`code` is the code of a `HeadwayError` (D001, C003, …); errors that only a server has use a word, as OpenAI does.
A server error does not show its own message, because the message could contain paths. It shows the request id; the log
has the traceback under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.errors import ConfigError, DataError, HeadwayError, MemoryOrDiskError, NotFoundError
from headway.generate.engine.engine import Closed, QueueFull
from headway.resources import as_headway_error

KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
RETRY = {"retry-after": "1"}


class ApiError(Exception):
    """Raise it to answer a request with an error instead of a result."""

    def __init__(
        self, status: int, message: str, code: str, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def unsupported(param: str, message: str) -> ApiError:
    """A field that would change the response and is not implemented. Ignoring it would answer another question."""
    return ApiError(400, f"{param}: {message}", "unsupported", param)


def overloaded(message: str) -> ApiError:
    return ApiError(429, f"{message}; try again in a moment", "rate_limit_exceeded", headers=RETRY)


def stopping() -> ApiError:
    return ApiError(503, "the server is stopping", "stopping", headers=RETRY)


def stuck(why: str) -> ApiError:
    return ApiError(503, why, "stuck", headers=RETRY)


def to_api_error(error: Exception, request_id: str) -> ApiError:
    """Convert any error into the one that the client of this request gets."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFull):
        return overloaded("the queue is full")
    if isinstance(error, Closed):
        return stopping()
    if isinstance(error, DataError | ConfigError) or (isinstance(error, NotFoundError) and error.code == "F003"):
        hint = f" ({error.hint})" if error.hint else ""
        return ApiError(400, error.message + hint, error.code)
    if (short := as_headway_error(error)) is not None:
        error = short
    if isinstance(error, MemoryOrDiskError):
        return ApiError(503, f"not enough memory for this request ({request_id})", error.code, headers=RETRY)
    code = error.code if isinstance(error, HeadwayError) else "B000"
    return ApiError(500, f"the server failed on this request; its log has the reason under {request_id}", code)
