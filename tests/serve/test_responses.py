"""Responses as seen from the event loop: submitting, cancelling, and events from the engine's thread."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headway.generate.engine.engine import Event, Request
from headway.generate.sampling.sampler import Sampling
from headway.serve.metrics import Metrics
from headway.serve.responses import LOGPROB_FLOOR, EventQueue, GenerationResponse, _finite
from headway.serve.schemas import CompletionRequest


class SlowEngine:
    """Accepts up to `most` requests, each once `go` is set."""

    def __init__(self, most: int = 99) -> None:
        self.called, self.go, self.most, self.submitted = threading.Event(), threading.Event(), most, list[Request]()

    def submit(self, request: Request, on_event: Callable[[Event], None]) -> Request:
        self.called.set()
        assert self.go.wait(10)
        if len(self.submitted) == self.most:
            raise RuntimeError("no more")
        self.submitted.append(request)
        return request


def response(engine: SlowEngine, count: int) -> GenerationResponse:
    served: Any = SimpleNamespace(engine=engine, id="m", requests=SimpleNamespace(eos_ids=()))
    context: Any = SimpleNamespace(server=SimpleNamespace(model=served, metrics=Metrics()), log_fields={})
    body = CompletionRequest.model_validate({"model": "m", "n": count})
    requests = [Request((1,), Sampling()) for _ in range(count)]
    return GenerationResponse(context, body, requests, None)  # type: ignore[arg-type]


def test_a_disconnect_during_submission_cancels_everything() -> None:
    async def disconnect() -> list[bool]:
        engine = SlowEngine()
        made = response(engine, 3)
        work = asyncio.get_running_loop().run_in_executor(None, made.submit)
        await asyncio.to_thread(engine.called.wait)
        made.cancel()
        engine.go.set()
        await work
        return [request.cancelled for request in engine.submitted]

    assert asyncio.run(disconnect()) == [True]


def test_all_requests_are_submitted_or_none() -> None:
    async def fail() -> list[bool]:
        engine = SlowEngine(most=2)
        engine.go.set()
        with pytest.raises(RuntimeError, match="no more"):
            response(engine, 3).submit()
        return [request.cancelled for request in engine.submitted]

    assert asyncio.run(fail()) == [True, True]


def test_a_busy_loop_is_woken_once_for_several_events() -> None:
    """No event is lost that came before the loop waited for it."""

    async def listen() -> tuple[int, list[list[tuple[int, int | None]]]]:
        queue = EventQueue()
        wakes, plain = [0], queue.loop.call_soon_threadsafe

        def counted(*given: Any) -> Any:
            wakes[0] += 1
            return plain(*given)

        queue.loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        batches = []
        for tokens in ((1, 2, 3), (4,)):
            for token in tokens:
                queue.put(token % 2, Event(token))
            batches.append([(index, event.token) for index, event in await queue.get()])
        return wakes[0], batches

    assert asyncio.run(listen()) == (2, [[(1, 1), (0, 2), (1, 3)], [(0, 4)]])


def test_events_before_an_error_are_not_lost() -> None:
    async def listen() -> list[int | None]:
        engine = SlowEngine()
        engine.go.set()
        made = response(engine, 1)
        made.submit()
        for event in (Event(1), Event(2), Event(None, finish="error")):
            made.queue.put(0, event)
        found = []
        with pytest.raises(RuntimeError, match="sequence 0: error"):
            async for events in made.events():
                found += [event.token for _, event in events]
        return found

    assert asyncio.run(listen()) == [1, 2]


@pytest.mark.parametrize(
    ("value", "shown"), [(-1.5, -1.5), *((value, LOGPROB_FLOOR) for value in (-math.inf, math.nan, None))]
)
def test_json_has_no_infinity(value: float | None, shown: float) -> None:
    assert _finite(value) == shown
