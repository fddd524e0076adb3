"""Server-sent events: a page hears of what changes, and asks again after a break; and of work that it waits for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing, suppress
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from headway.progress import Collected, Stopped, collected
from headway.studio.errors import described

BEAT = 15.0
"""Seconds after which a silent stream says that it is alive."""
LOOK = 0.1
"""Seconds between two looks at work that is under way."""


def events(made: AsyncGenerator[Any, None]) -> StreamingResponse:
    """A stream of values as server-sent events; None is a sign of life."""

    async def lines() -> AsyncIterator[str]:
        async with aclosing(made):
            async for value in made:
                yield ": alive\n\n" if value is None else f"data: {json.dumps(value)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def changes(look: Callable[[], Any], every: float = 1.0) -> AsyncGenerator[Any, None]:
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


async def stepped(work: Generator[Any, None, None]) -> AsyncGenerator[Any, None]:
    """The values of a computation, each made in a thread. A page that goes away ends it: the generator is closed."""
    over = object()
    try:
        while (value := await run_in_threadpool(next, work, over)) is not over:
            yield value
    finally:
        work.close()


async def worked(function: Callable[[Callable[[Any], None]], None]) -> AsyncGenerator[dict[str, Any], None]:
    """What a function of a thread does: its bars as `doing`, what it hands to its argument as `found`, an `error`.

    The last value has `done`. When nobody listens any more, the function ends at the next tick of a bar.
    """
    bars, found, error = Collected(), list[Any](), list[dict[str, str]]()

    def work() -> None:
        with collected(bars), suppress(Stopped):
            try:
                function(found.append)
            except Exception as problem:
                error.append(described(problem)[1])

    thread = threading.Thread(target=work, name="studio-work", daemon=True)
    thread.start()
    last: Any = None
    try:
        while True:
            done = not thread.is_alive()
            doing = [bar.to_dict() for bar in list(bars.bars)]
            while found:
                yield {"found": found.pop(0)}
            if done:
                yield {"done": True, **({"error": error[0]} if error else {})}
                return
            if doing != last:
                last = doing
                yield {"doing": doing}
            await asyncio.sleep(LOOK)
    finally:
        bars.stop = True
