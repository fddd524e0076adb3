"""Batches ahead of time: the same ones in the same order for any number of threads, which end with their loader."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.batching.prefetch import Prefetcher

ROOT = Path(__file__).resolve().parents[2]


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)
    return condition()


def threads() -> int:
    return sum(thread.name == "headway-loader" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    assert eventually(lambda: threads() == 0)
    yield
    gc.collect()
    assert eventually(lambda: threads() == 0)


@given(
    st.sampled_from([0, 1, 4]), st.integers(0, 5), st.integers(0, 9), st.integers(0, 30), st.sets(st.integers(0, 30))
)
@settings(max_examples=50)
def test_workers_change_nothing(workers: int, ahead: int, first: int, count: int, failing: set[int]) -> None:
    def make(step: int) -> int:
        time.sleep(random.Random(step).random() * 1e-3)
        if step in failing:
            raise ValueError(step)
        return step * step

    found: list[object] = []
    with Prefetcher(make, first, workers, ahead) as loader:
        for _ in range(count):
            try:
                found.append(next(loader))
            except ValueError as error:
                found.append(("failed", error.args[0]))
    assert found == [("failed", step) if step in failing else step * step for step in range(first, first + count)]


def test_the_traceback_of_a_failure_says_where() -> None:
    def inner(step: int) -> int:
        raise LookupError(f"nothing at {step}")

    for workers in (0, 1):
        with Prefetcher(inner, 7, workers) as loader, pytest.raises(LookupError, match="nothing at 7") as caught:
            next(loader)
        assert "inner" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_end_inside_of_a_batch_is_not_the_end_of_the_batches(workers: int) -> None:
    with Prefetcher(lambda step: next(iter(())), 0, workers) as loader, pytest.raises(RuntimeError, match="step 0"):
        next(loader)


@pytest.mark.parametrize(("workers", "ahead"), [(0, 2), (1, 0), (1, 2), (4, 3)])
def test_so_many_are_made_ahead_and_no_more(workers: int, ahead: int) -> None:
    made: list[int] = []
    with Prefetcher(lambda step: made.append(step) or step, 0, workers, ahead) as loader:
        for taken in range(4):
            ready = taken + (ahead if workers else 0)
            assert eventually(lambda ready=ready: len(made) == ready)
            time.sleep(0.002)
            assert sorted(made) == list(range(ready))
            assert next(loader) == taken


def test_workers_make_batches_side_by_side() -> None:
    together = threading.Barrier(3, timeout=5)

    def make(step: int) -> int:
        together.wait()  # passes only when three steps are being made at once
        return step

    with Prefetcher(make, 0, workers=3, ahead=3) as loader:
        assert list(islice(loader, 3)) == [0, 1, 2]
        together.abort()


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_closed_loader_ends(workers: int) -> None:
    loader = Prefetcher(lambda step: step, 0, workers)
    assert next(loader) == 0
    loader.close()
    loader.close()
    assert list(islice(loader, 3)) == []
    assert eventually(lambda: threads() == 0)


def test_closing_does_not_wait_and_nothing_new_is_begun() -> None:
    begun: list[int] = []
    go_on = threading.Event()
    loader = Prefetcher(lambda step: begun.append(step) or go_on.wait(10), 0, workers=1, ahead=5)
    assert eventually(lambda: begun == [0])
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 1
    go_on.set()
    assert eventually(lambda: threads() == 0)
    assert begun == [0]


def test_closing_frees_whoever_waits() -> None:
    go_on, found = threading.Event(), []
    loader = Prefetcher(lambda step: go_on.wait(10), 0, workers=1)
    reader = threading.Thread(target=lambda: found.append(list(loader)))
    reader.start()
    time.sleep(0.01)
    loader.close()
    reader.join(5)
    assert found == [[]]
    go_on.set()


def test_a_forgotten_loader_takes_its_threads_along() -> None:
    for _ in range(30):
        loader = Prefetcher(lambda step: step, 0, workers=3)
        assert next(loader) == 0
    assert threads() <= 30
    del loader
    assert eventually(lambda: threads() == 0)


def test_a_loader_is_forgotten_with_its_owner() -> None:
    class Owner:
        def __init__(self) -> None:
            self.loader = Prefetcher(self.make, 0, workers=2)  # owner → loader → make → owner

        def make(self, step: int) -> int:
            return step

    owner = Owner()
    assert list(islice(owner.loader, 3)) == [0, 1, 2]
    gone = weakref.ref(owner)
    del owner

    def collected() -> bool:
        gc.collect()
        return gone() is None

    assert eventually(collected)
    assert eventually(lambda: threads() == 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_is_let_go_of_when_it_is_handed_out(workers: int) -> None:
    class Batch:
        pass

    with Prefetcher(lambda step: Batch(), 0, workers, ahead=1) as loader:
        handed_out = weakref.ref(next(loader))
        assert eventually(lambda: handed_out() is None)


@pytest.mark.parametrize(("seconds", "patience", "finished"), [(0.0, 60, 3), (0.2, 60, 3), (60.0, 0.1, 0)])
def test_the_program_ends_whatever_its_loaders_do(seconds: float, patience: float, finished: int) -> None:
    """Idle threads are not waited for, busy ones come home, and one that takes too long is left behind."""
    program = f"""
import time
from headway.data.batching import prefetch as loader

def make(step):
    begun.append(step)
    time.sleep({seconds} if step else 0)
    finished.append(step)
    return step

begun, finished = [], []
loader.atexit.unregister(loader._join_at_exit)
loader.atexit.register(lambda: print(len(finished) - 1))
loader.atexit.register(loader._join_at_exit)
loader.EXIT_SECONDS = {patience}
batches = loader.Prefetcher(make, 0, workers=3, ahead=3)
assert next(batches) == 0
while len(begun) < 4:
    time.sleep(0.001)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{finished}\n", "")
