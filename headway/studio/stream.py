"""Server-sent events: a page hears of what changes, and asks again by itself after a break."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

BEAT = 15.0
"""Seconds after which a silent stream says that it is alive."""


def events(made: AsyncIterator[Any]) -> StreamingResponse:
    """A stream of values as server-sent events; None is a sign of life."""

    async def lines() -> AsyncIterator[str]:
        async for value in made:
            yield ": alive\n\n" if value is None else f"data: {json.dumps(value)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def changes(look: Callable[[], Any], every: float = 1.0) -> AsyncIterator[Any]:
    """A value whenever it differs from the one before, looked at every so many seconds; it never ends by itself."""
    last: Any = object()
    told = time.monotonic()
    while True:
        now = await run_in_threadpool(look)
        if now != last:
            last, told = now, time.monotonic()
            yield now
        elif time.monotonic() - told > BEAT:
            told = time.monotonic()
            yield None
        await asyncio.sleep(every)
