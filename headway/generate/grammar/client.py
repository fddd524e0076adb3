"""The client of the process that checks grammars (`worker`): starts, asks, ends and replaces it.

A matcher cannot be sent between processes. So a grammar is compiled twice: in the worker, which can be killed at any
time, and then here, where the same work takes as long again. Verdicts are cached, matchers are not: copies of a matcher
share a lexer, whose states one sequence may use up for all the others.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.data.chat_template.client import killed_from_outside, spawn, stop
from headway.errors import ConfigError, MemoryOrDiskError

SECONDS, WALL_SECONDS = 1.0, 4.0
"""Limits for one grammar: CPU time and wall time. Ordinary grammars take milliseconds."""
ROOM = 16 << 20
"""Bytes for one grammar. Each sequence that follows one may use as much again."""
VERDICTS = 1024
"""Verdicts in the cache."""
WORKER = Path(__file__).with_name("worker.py")
TOO_HARD = "this pattern or schema cannot be followed"
SIMPLER = "make it simpler: fewer patterns in one allOf, shorter repeats, smaller multiples, fewer optional properties"


class GaveUp(Exception):
    """The caller does not wait for the verdict any more."""


class Trial:
    """Checks grammars for one vocabulary, one at a time. The first check starts the process."""

    def __init__(self, tokens: Sequence[bytes], ends: Sequence[int], special: Sequence[int]) -> None:
        vocabulary = {"tokens": [token.hex() for token in tokens], "ends": list(ends), "special": list(special)}
        self.vocabulary = json.dumps(vocabulary).encode() + b"\n"
        self.lock = threading.Lock()
        self.child: subprocess.Popen[bytes] | None = None
        self.ending: weakref.finalize[[subprocess.Popen[bytes]], Trial] | None = None
        """Ends the process when this object or this process ends."""
        self.verdicts: OrderedDict[bytes, str | ConfigError] = OrderedDict()

    def judge(self, grammar: str, gone: Callable[[], bool] = lambda: False) -> None:
        """ConfigError if a grammar cannot be followed: C003 if it is invalid, C005 if it costs too much.

        `gone` is called now and then and says whether to give up.
        """
        key = hashlib.sha256(grammar.encode()).digest()
        with self.lock:
            if key not in self.verdicts:
                self.verdicts[key] = self._verdict(grammar, gone)
            verdict = self.verdicts[key]
            self.verdicts.move_to_end(key)
            if len(self.verdicts) > VERDICTS:
                self.verdicts.popitem(last=False)
        if isinstance(verdict, ConfigError):
            raise ConfigError(verdict.code, verdict.message, verdict.hint)
        if verdict:
            raise ConfigError("C003", f"invalid pattern or schema: {verdict[:300]}")

    def _verdict(self, grammar: str, gone: Callable[[], bool], earlier: int | None = None) -> str | ConfigError:
        """The verdict to cache. `earlier` is the status of a worker that ended before, for no known reason."""
        request = {"grammar": grammar, "seconds": SECONDS, "room": ROOM}
        began = time.monotonic()
        child = self._process(gone)
        asked = time.monotonic()
        raw = _talk(child, json.dumps(request).encode() + b"\n", gone, asked + WALL_SECONDS)
        if raw.endswith(b"\n"):
            found = json.loads(raw)
            return ConfigError("C005", f"{TOO_HARD}: {found['error']}", SIMPLER) if found["hard"] else found["error"]
        status = self._end(child)
        if gone():
            raise GaveUp
        if time.monotonic() >= asked + WALL_SECONDS:  # not cached: another try may succeed
            raise ConfigError("C005", f"{TOO_HARD}: no verdict after {time.monotonic() - began:.1f} s", SIMPLER)
        if not killed_from_outside(status, earlier):
            what = f"more than {ROOM >> 20} MB (status {status})"
            if status == -getattr(signal, "SIGPROF", 0):
                what = f"more than {SECONDS:g} s"
            return ConfigError("C005", f"{TOO_HARD}: it needs {what}", SIMPLER)
        if earlier is None:
            return self._verdict(grammar, gone, status)
        raise MemoryOrDiskError("M001", f"the process that checks grammars was ended twice (status {status})")

    def _process(self, gone: Callable[[], bool]) -> subprocess.Popen[bytes]:
        if self.child is not None and self.child.poll() is None:
            return self.child
        if self.child is not None:  # ended from outside
            self._end(self.child)
        self.child = child = spawn(WORKER)
        self.ending = weakref.finalize(self, stop, child)
        if _talk(child, self.vocabulary, gone, time.monotonic() + 60.0) != b"ready\n":
            status = self._end(child)
            if gone():
                raise GaveUp
            raise MemoryOrDiskError("M001", f"the process that checks grammars ended with status {status}")
        return child

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """End the process; its exit status."""
        if self.ending is not None:
            self.ending.detach()
        self.child = None
        return stop(child)


def _talk(child: subprocess.Popen[bytes], line: bytes, gone: Callable[[], bool], deadline: float) -> bytes:
    """The worker's answer; incomplete if the worker ended first."""
    assert child.stdin is not None and child.stdout is not None
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            if gone() or time.monotonic() > deadline:
                child.kill()
                return

    watcher = threading.Thread(target=watch, name="headway-grammar-watch", daemon=True)
    watcher.start()
    try:
        child.stdin.write(line)
        child.stdin.flush()
        return child.stdout.readline()
    except BrokenPipeError:
        return b""
    except BaseException:  # an interrupt: the next request must not get this answer
        child.kill()
        raise
    finally:
        done.set()
        watcher.join()
