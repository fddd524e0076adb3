"""Texts that the engine writes for one request, seen from the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial

from headway.errors import HeadwayError
from headway.generate.engine.engine import Engine, Event, Request, Ticket
from headway.serve.errors import Problem
from headway.serve.metrics import Metrics


class Generation:
    """Made in the event loop; `submit` may take a while and belongs into another thread."""

    def __init__(self, engine: Engine, requests: Sequence[Request], metrics: Metrics) -> None:
        self.engine, self.requests, self.metrics = engine, requests, metrics
        self.loop = asyncio.get_running_loop()
        self.news: list[tuple[int, Event]] = []
        """What was heard since the loop last looked."""
        self.awake = asyncio.Event()
        self.problem: Problem | None = None
        self.began = time.monotonic()
        self.last: dict[int, float] = {}
        """Text → when its last token came."""
        self.done: set[int] = set()
        self.over = False
        self.tickets: list[Ticket] = []
        self.lock = threading.Lock()
        """Of `news`, `over` and `tickets`: the client may leave while its texts are being submitted."""

    def submit(self) -> None:
        """Hand the texts to the engine, all or none."""
        try:
            for index, request in enumerate(self.requests):
                ticket = self.engine.submit(request, partial(self._heard, index))
                with self.lock:
                    self.tickets.append(ticket)
                    over = self.over
                if over:
                    ticket.cancel()
                    return
        except BaseException:
            self.cancel()
            raise

    def _heard(self, index: int, event: Event) -> None:
        """In the engine's thread. A busy loop is woken once for all that came meanwhile: waking costs a system call."""
        with self.lock:
            self.news.append((index, event))
            first = len(self.news) == 1
        if first:
            with suppress(RuntimeError):  # the loop has been closed: nobody listens any more
                self.loop.call_soon_threadsafe(self.awake.set)

    async def events(self) -> AsyncIterator[list[tuple[int, Event]]]:
        """What is written, by the number of the text, until all texts are complete; all there is at each time."""
        while len(self.done) < len(self.requests):
            await self.awake.wait()
            self.awake.clear()
            if self.problem is not None:
                raise self.problem
            with self.lock:
                news, self.news = self.news, []
            for place, (index, event) in enumerate(news):
                if event.finish in ("error", "cancelled"):
                    yield news[:place]  # what came before it counts
                    raise self._reason(index, event)
                self._measure(index, event)
                if event.finish is not None:
                    self.done.add(index)
            yield news

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

    def fail(self, problem: Problem) -> None:
        self.problem = problem
        self.awake.set()
        self.cancel()

    def cancel(self) -> None:
        with self.lock:
            first, self.over = not self.over, True
            tickets = list(self.tickets)
        if first:
            self.metrics.cancelled.inc(len(self.requests) - len(self.done))
        for ticket in tickets:
            ticket.cancel()
