"""Prefetching: threads make batches ahead of time, while the training step runs.

No locks are held. One reentrant queue carries the steps to the threads, and one queue per step carries its result
back, so results arrive in order whichever thread makes them.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_SECONDS = 2.0
"""Seconds that the interpreter's exit waits for unfinished batches."""

Outcome = tuple[Any, BaseException | None]
Slot = SimpleQueue[Outcome | None]
"""Receives the outcome of one step; None if there will be none."""


class Prefetcher(Iterator[T]):
    """Yields `make(step)` for step = first, first + 1, … without end; workers change only when it is called.

    An exception in `make` is raised at its step, and iteration continues with the next step. When the prefetcher is
    closed or garbage-collected, unfinished batches are finished and dropped, and no other is started.
    """

    def __init__(self, make: Callable[[int], T], first: int, workers: int = 0, ahead: int = 2) -> None:
        """`workers` threads keep `ahead` batches ready; with 0 workers, `next` makes each batch."""
        self._make, self._step, self._ahead = make, first, ahead
        self._pending: list[Slot] = []
        self._workers = _Workers(min(workers, ahead + 1))
        self._stop = weakref.finalize(self, self._workers.stop)
        self._stop.atexit = False  # see `_join_at_exit`
        self._submit(ahead)

    def __next__(self) -> T:
        self._submit(self._ahead + 1)
        if self._workers.stopped:  # checked after submitting: `close` then finds all pending steps
            raise StopIteration
        if self._workers.threads:
            outcome = self._pending[0].get()
            if outcome is None:
                raise StopIteration
            del self._pending[0]
        else:
            self._step += 1
            outcome = _outcome(self._make, self._step - 1)
        value, error = outcome
        if error is not None:
            raise error
        made: T = value
        return made

    def close(self) -> None:
        """Stop the threads; a waiting `next` raises StopIteration. Does not wait for unfinished batches."""
        self._stop()
        for slot in list(self._pending):
            slot.put(None)

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, count: int) -> None:
        """Submit steps until `count` are pending."""
        while self._workers.threads and len(self._pending) < count:
            slot: Slot = SimpleQueue()
            self._pending.append(slot)
            self._workers.jobs.put((self._make, self._step, slot))
            self._step += 1


class _Workers:
    """The threads of a prefetcher. They hold no reference to it, and to `make` only while they call it."""

    def __init__(self, size: int) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[int], Any], int, Slot] | None] = SimpleQueue()
        self.stopped = False
        self.threads = [threading.Thread(target=self._work, daemon=True, name="headway-loader") for _ in range(size)]
        for thread in self.threads:
            thread.start()
        _all_workers.add(self)

    def stop(self) -> None:
        """Also called by the garbage collector, in any thread and between any two lines."""
        self.stopped = True
        for _ in self.threads:
            self.jobs.put(None)

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """A separate function, so that a waiting thread keeps no batch alive."""
        job = self.jobs.get()
        if job is None or self.stopped:
            return False
        make, step, slot = job
        slot.put(_outcome(make, step))
        return True


def _outcome(make: Callable[[int], Any], step: int) -> Outcome:
    try:
        return make(step), None
    except StopIteration as error:  # would look like the end of iteration
        return None, RuntimeError(f"the batch of step {step} raised {error!r}")
    except BaseException as error:
        return None, error


_all_workers: weakref.WeakSet[_Workers] = weakref.WeakSet()


@atexit.register
def _join_at_exit() -> None:
    """Join the threads at exit: Python freezes daemon threads, and one inside C++ code may abort the process."""
    pools = list(_all_workers)
    for workers in pools:
        workers.stop()
    until = time.monotonic() + EXIT_SECONDS
    for thread in (thread for workers in pools for thread in workers.threads):
        thread.join(max(0.0, until - time.monotonic()))
