"""The process that tries grammars out (`worker`), seen from here: started, asked, ended, replaced.

What a matcher knows cannot be sent between processes. So a grammar is compiled twice: there, where it can be ended at
any time, and then here, where the same work takes as long again and no longer. Verdicts are kept, matchers are not:
copies of a matcher share a lexer, whose states one sequence may use up for all the others.
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
"""For one grammar: of the processor's time, and by the clock. Honest ones take milliseconds."""
ROOM = 16 << 20
"""Bytes for one grammar. Each text that follows one may hold as much again, so they are not to be large."""
VERDICTS = 1024
"""Grammars whose verdict is remembered."""
WORKER = Path(__file__).with_name("worker.py")
TOO_HARD = "this pattern or schema cannot be followed"
SIMPLER = "make it simpler: fewer patterns in one allOf, shorter repeats, smaller multiples, fewer optional properties"


class GaveUp(Exception):
    """Nobody waits for the verdict any more."""


class Trial:
    """For one vocabulary. One grammar at a time; the process is started by the first one and kept."""

    def __init__(self, tokens: Sequence[bytes], ends: Sequence[int], special: Sequence[int]) -> None:
        vocabulary = {"tokens": [token.hex() for token in tokens], "ends": list(ends), "special": list(special)}
        self.vocabulary = json.dumps(vocabulary).encode() + b"\n"
        self.lock = threading.Lock()
        self.child: subprocess.Popen[bytes] | None = None
        self.ending: weakref.finalize[[subprocess.Popen[bytes]], Trial] | None = None
        """Ends the process with this object, or with ours."""
        self.verdicts: OrderedDict[bytes, str | ConfigError] = OrderedDict()

    def judge(self, grammar: str, gone: Callable[[], bool] = lambda: False) -> None:
        """ConfigError where no sequence can be held to it: C003 for a wrong grammar, C005 for one that costs too much.

        `gone` is asked now and then whether to give up.
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
            raise ConfigError("C003", f"not a pattern that a text can be held to: {verdict[:300]}")

    def _verdict(self, grammar: str, gone: Callable[[], bool], earlier: int | None = None) -> str | ConfigError:
        """To be remembered. The process that tried it `earlier` ended with this status, without a reason."""
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
        if time.monotonic() >= asked + WALL_SECONDS:  # another time it may go differently
            raise ConfigError("C005", f"{TOO_HARD}: no verdict after {time.monotonic() - began:.1f} s", SIMPLER)
        if not killed_from_outside(status, earlier):
            what = f"more than {ROOM >> 20} MB (status {status})"
            if status == -getattr(signal, "SIGPROF", 0):
                what = f"more than {SECONDS:g} s"
            return ConfigError("C005", f"{TOO_HARD}: it needs {what}", SIMPLER)
        if earlier is None:
            return self._verdict(grammar, gone, status)
        raise MemoryOrDiskError("M001", f"the process that tries grammars out was ended twice (status {status})")

    def _process(self, gone: Callable[[], bool]) -> subprocess.Popen[bytes]:
        if self.child is not None and self.child.poll() is None:
            return self.child
        if self.child is not None:  # something else ended it
            self._end(self.child)
        self.child = child = spawn(WORKER)
        self.ending = weakref.finalize(self, stop, child)
        if _talk(child, self.vocabulary, gone, time.monotonic() + 60.0) != b"ready\n":
            status = self._end(child)
            if gone():
                raise GaveUp
            raise MemoryOrDiskError("M001", f"the process that tries grammars out ended with status {status}")
        return child

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """End the process; its exit status."""
        if self.ending is not None:
            self.ending.detach()
        self.child = None
        return stop(child)


def _talk(child: subprocess.Popen[bytes], line: bytes, gone: Callable[[], bool], deadline: float) -> bytes:
    """The answer; what there is of one when the process ended before it was complete."""
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
    except BaseException:  # an interrupt: the next request must not get the answer to this one
        child.kill()
        raise
    finally:
        done.set()
        watcher.join()
