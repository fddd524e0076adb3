"""A block: some rows of a file, as columns and one by one; and the threads that parse blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.data.files.readers import Flaw, Found, Row

SIZE = 1 << 21
"""Bytes of a block, about."""
THREADS = 2

Result = TypeVar("Result")


class Block(Protocol):
    """Some rows of a file, in order."""

    @property
    def table(self) -> Any:
        """A pyarrow table, each of its columns one array; None: the rows need care, use `rows`."""

    @property
    def file(self) -> str: ...

    @property
    def lines(self) -> NDArray[np.int64]:
        """The line where each row of the table starts."""

    def rows(self) -> Found:
        """The rows one by one, as the reader of the file gives them."""

    def row(self, index: int) -> Row | Flaw:
        """One row of the table, as the reader of the file gives it."""


Look = Callable[[Any], Result]
"""What is done with the table of a block in its thread."""


def in_threads(jobs: Iterable[Callable[[], Result]], threads: int = THREADS) -> Iterator[Result]:
    """Yield the results of jobs in order, a few jobs ahead. The next job is asked for after a result was taken."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()


def is_utf8(raw: bytes) -> bool:
    """Whether bytes are UTF-8. pyarrow needs a tenth of the time of Python, and lets other threads work."""
    import pyarrow

    ends = pyarrow.py_buffer(np.array([0, len(raw)], dtype=np.int64))
    text = pyarrow.Array.from_buffers(pyarrow.large_string(), 1, [None, ends, pyarrow.py_buffer(raw)])
    try:
        text.validate(full=True)
    except pyarrow.ArrowInvalid:
        return False
    return True
