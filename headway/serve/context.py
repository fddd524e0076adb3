"""What the parts of a running server share: its limits, its keys, and what is going on in it now."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headway.serve.auth import Keys
from headway.serve.errors import ApiError, overloaded, to_api_error
from headway.serve.limits import Limits
from headway.serve.metrics import Log, Metrics

T = TypeVar("T")


class Cancellable(Protocol):
    """Work that a client waits for."""

    def fail(self, api_error: ApiError) -> None:
        """End it, and let the client know why."""

    def cancel(self) -> None:
        """End it: nobody waits any more. To be called once it is over, too."""


@dataclass(eq=False)
class ServerContext:
    """Of one server. Changed by the event loop only."""

    limits: Limits
    keys: Keys
    metrics: Metrics
    log: Log
    hosts: frozenset[str] = frozenset()
    """Names by which a server on loopback may be called; empty where anybody may come by any name."""
    stuck: Callable[[], str] = str
    """Why nobody can be answered now; empty where there is no such reason."""
    stopping: bool = False
    open: int = 0
    """Requests being answered."""
    bodies: int = 0
    """Bytes of their bodies."""
    running: set[RequestContext] = field(default_factory=set)
    """The same, one by one, and those of addresses that are not counted."""
    pool: ThreadPoolExecutor = field(init=False)
    """For what takes long before a text can be written, so that the event loop never waits for it."""

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="headway-request")

    async def run_in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of a function, computed in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)


@dataclass(eq=False)
class RequestContext:
    """One request on its way through the server, in a task of its own."""

    id: str
    server: ServerContext
    work: list[Cancellable] = field(default_factory=list)
    log_fields: dict[str, Any] = field(default_factory=dict)
    """What the log says of it beside method, path and status."""
    body: int = 0
    """Bytes of it that have been read."""
    api_error: ApiError | None = None
    """Why it was ended from outside before there was any work."""

    def __post_init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.server.running.add(self)

    def record_error(self, error: Exception) -> ApiError:
        """How an error is told to the client; the log is told the reason where the client is not."""
        api_error = to_api_error(error, self.id)
        self.log_fields["error"] = api_error.code
        if api_error.status >= 500 and api_error is not error:
            self.log_fields["reason"] = "".join(traceback.format_exception(error))
        return api_error

    def reserve_body(self, size: int) -> None:
        """So many more bytes of the body are held until the visit ends."""
        self.body += size
        self.server.bodies += size
        if self.server.bodies > self.server.limits.bodies_bytes:
            raise overloaded(f"the bodies of all requests have more than {self.server.limits.bodies_bytes:,} bytes")

    def release(self) -> None:
        """Nothing of the body is held any more."""
        self.server.bodies -= self.body
        self.body = 0

    def attach(self, work: Cancellable) -> None:
        """From now on it ends with the visit, however that ends."""
        self.work.append(work)

    def fail(self, api_error: ApiError) -> None:
        """End it wherever it is, and let the client know why."""
        for work in self.work:
            work.fail(api_error)
        if not self.work and self.api_error is None:
            self.api_error = api_error
            self.task.cancel()

    def end(self) -> None:
        self.server.running.discard(self)
        self.release()
        for work in self.work:
            work.cancel()
