"""Answers that are no result: a status, and a body in OpenAI's shape.

`code` is headway's own where an error has one (D001, C003, …); what only a server can say is a word, as OpenAI does.
What is the server's fault shows no message of its own, which could hold paths, but the request's id, under which the
log has the rest.
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
    """Raised wherever a request turns out not to be answered with a result."""

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
    """For what would change an answer and is not there: to ignore it would be to answer another question."""
    return ApiError(400, f"{param}: {message}", "unsupported", param)


def overloaded(message: str) -> ApiError:
    return ApiError(429, f"{message}; try again in a moment", "rate_limit_exceeded", headers=RETRY)


def stopping() -> ApiError:
    return ApiError(503, "the server is stopping", "stopping", headers=RETRY)


def stuck(why: str) -> ApiError:
    return ApiError(503, why, "stuck", headers=RETRY)


def to_api_error(error: Exception, request: str) -> ApiError:
    """How an error is told to the client whose request, with this id, met it."""
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
        return ApiError(503, f"too little memory for this request ({request})", error.code, headers=RETRY)
    code = error.code if isinstance(error, HeadwayError) else "B000"
    return ApiError(500, f"the server failed to answer; its log has the reason under {request}", code)
