"""Texts that the engine writes for one request, seen from the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

from headway.errors import HeadwayError
from headway.generate.engine.engine import Engine, Event, Request
from headway.serve.errors import ApiError
from headway.serve.metrics import Metrics


class Generation:
    """Made in the event loop; `submit` may take a while and belongs into another thread."""

    def __init__(self, engine: Engine, requests: Sequence[Request], metrics: Metrics) -> None:
        self.engine, self.requests, self.metrics = engine, requests, metrics
        self.loop = asyncio.get_running_loop()
        self.pending: list[tuple[int, Event]] = []
        """What was heard since the loop last looked."""
        self.wakeup = asyncio.Event()
        self.api_error: ApiError | None = None
        self.began = time.monotonic()
        self.last: dict[int, float] = {}
        """Text → when its last token came."""
        self.done: set[int] = set()
        self.cancelled = False
        self.tickets: list[Request] = []
        self.lock = threading.Lock()
        """Of `pending`, `cancelled` and `tickets`: the client may leave while its texts are being submitted."""

    def submit(self) -> None:
        """Hand the texts to the engine, all or none."""
        try:
            for index, request in enumerate(self.requests):
                ticket = self.engine.submit(request, partial(self._on_event, index))
                with self.lock:
                    self.tickets.append(ticket)
                    cancelled = self.cancelled
                if cancelled:
                    ticket.cancel()
                    return
        except BaseException:
            self.cancel()
            raise

    def _on_event(self, index: int, event: Event) -> None:
        """In the engine's thread. A busy loop is woken once for all that came meanwhile: waking costs a system call."""
        with self.lock:
            self.pending.append((index, event))
            first = len(self.pending) == 1
        if first:
            with suppress(RuntimeError):  # the loop has been closed: nobody listens any more
                self.loop.call_soon_threadsafe(self.wakeup.set)

    async def events(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """What is written, by the number of the text, until all texts are complete; all there is at each time."""
        while len(self.done) < len(self.requests):
            await self.wakeup.wait()
            self.wakeup.clear()
            if self.api_error is not None:
                raise self.api_error
            with self.lock:
                pending, self.pending = self.pending, []
            for place, (index, event) in enumerate(pending):
                if event.finish in ("error", "cancelled"):
                    yield pending[:place]  # what came before it counts
                    raise self._reason(index, event)
                self._measure(index, event)
                if event.finish is not None:
                    self.done.add(index)
            yield pending

    def _reason(self, index: int, event: Event) -> Exception:
        """Errors of headway are told as such: a pattern that cannot be followed is its author's affair."""
        error = self.tickets[index].error
        if isinstance(error, HeadwayError):
            return error
        reason = RuntimeError(f"the engine ended text {index}: {event.finish}")
        reason.__cause__ = error
        return reason

    def _measure(self, index: int, event: Event) -> None:
        now = time.monotonic()
        if event.token is not None:
            self.metrics.new_tokens.inc()
            if index in self.last:
                self.metrics.next_token.observe(now - self.last[index])
            else:
                self.metrics.first_token.observe(now - self.began)
            self.last[index] = now

    def fail(self, api_error: ApiError) -> None:
        self.api_error = api_error
        self.wakeup.set()
        self.cancel()

    def cancel(self) -> None:
        with self.lock:
            first, self.cancelled = not self.cancelled, True
            tickets = list(self.tickets)
        if first:
            self.metrics.cancelled.inc(len(self.requests) - len(self.done))
        for ticket in tickets:
            ticket.cancel()
