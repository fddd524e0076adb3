"""Batches made ahead of time, by threads: numpy and files let the training go on meanwhile.

There are no locks. A queue that may be written to in the midst of anything carries the steps to be made, and one more
for each step carries its result back, so the results come in order whoever makes them.
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
"""Seconds that the end of the program waits for batches in the making."""

Outcome = tuple[Any, BaseException | None]
Slot = SimpleQueue[Outcome | None]
"""Gets what became of one step; None when nothing will."""


class Prefetcher(Iterator[T]):
    """`make(step)` for step = first, first + 1, … without end; the workers change when it is called, nothing else.

    An exception of `make` is raised in its step's place, and the one after it is the next. A batch that a thread has
    begun when the loader is closed, or forgotten, is finished and dropped; no other is begun.
    """

    def __init__(self, make: Callable[[int], T], first: int, workers: int = 0, ahead: int = 2) -> None:
        """`workers` threads keep `ahead` batches ready; with none, each is made when it is asked for."""
        self._make, self._step, self._ahead = make, first, ahead
        self._pending: list[Slot] = []
        self._workers = _Workers(min(workers, ahead + 1))
        self._stop = weakref.finalize(self, self._workers.stop)
        self._stop.atexit = False  # see `_join_at_exit`
        self._submit(ahead)

    def __next__(self) -> T:
        self._submit(self._ahead + 1)
        if self._workers.stopped:  # after ordering: whoever closes the loader now finds the orders
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
        """Stop the threads, and with StopIteration whoever waits for them. Does not wait for a batch in the making."""
        self._stop()
        for slot in list(self._pending):
            slot.put(None)

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, count: int) -> None:
        """See that so many steps are being made."""
        while self._workers.threads and len(self._pending) < count:
            slot: Slot = SimpleQueue()
            self._pending.append(slot)
            self._workers.jobs.put((self._make, self._step, slot))
            self._step += 1


class _Workers:
    """The threads of a loader; they do not know it, and `make` only while they use it: both can be collected."""

    def __init__(self, size: int) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[int], Any], int, Slot] | None] = SimpleQueue()
        self.stopped = False
        self.threads = [threading.Thread(target=self._work, daemon=True, name="headway-loader") for _ in range(size)]
        for thread in self.threads:
            thread.start()
        _all_workers.add(self)

    def stop(self) -> None:
        """Called by the garbage collector too, in any thread and between any two lines."""
        self.stopped = True
        for _ in self.threads:
            self.jobs.put(None)

    def _work(self) -> None:
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """A function of its own, so that a thread that waits holds on to no batch."""
        job = self.jobs.get()
        if job is None or self.stopped:
            return False
        make, step, slot = job
        slot.put(_outcome(make, step))
        return True


def _outcome(make: Callable[[int], Any], step: int) -> Outcome:
    try:
        return make(step), None
    except StopIteration as error:  # would look like the end of the batches
        return None, RuntimeError(f"the batch of step {step} raised {error!r}")
    except BaseException as error:
        return None, error


_all_workers: weakref.WeakSet[_Workers] = weakref.WeakSet()


@atexit.register
def _join_at_exit() -> None:
    """Python leaves daemon threads where they stand, and one inside of C++ code may abort it: let them come home."""
    pools = list(_all_workers)
    for workers in pools:
        workers.stop()
    until = time.monotonic() + EXIT_SECONDS
    for thread in (thread for workers in pools for thread in workers.threads):
        thread.join(max(0.0, until - time.monotonic()))
