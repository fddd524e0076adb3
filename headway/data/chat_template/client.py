"""Client of the process that renders chat templates (`worker`): starts, asks, stops and replaces it.

The first render starts the process, which takes about a tenth of a second; later renders use the same one. It exits
with us, at the latest at the end of its input.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headway.errors import DataError, MemoryOrDiskError, NotFoundError

OUTPUT_LIMIT, REQUEST_LIMIT = 1_000_000, 8_000_000
"""Bytes of a template's output, and of a request."""
CPU_SECONDS, WALL_SECONDS = 0.25, 5.0
"""Limits for one render: CPU time, so that a good template never fails on a busy machine; or wall time on systems
without a CPU timer."""
HAS_CPU_TIMER = hasattr(signal, "setitimer")
"""Whether the worker can limit its own CPU time."""
MEMORY = 512 << 20
"""Bytes of the worker's address space; the interpreter takes about an eighth."""
WORKER = Path(__file__).with_name("worker.py")
PASSED_ENVIRONMENT = ("TZ", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONHOME")
"""The only environment variables of the worker, so that no secret leaks: what Python needs, and the time zone."""
LIMIT_SIGNALS = frozenset({getattr(signal, "SIGPROF", 0), signal.SIGABRT})
"""Signals by which our limits end a process: out of time, out of memory."""
FAULT_SIGNALS = frozenset(getattr(signal, name, 0) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"))
"""Signals that a program can cause itself, for example by a stack overflow."""

_lock = threading.Lock()
_child: subprocess.Popen[bytes] | None = None


def send_request(source: str, renders: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Send a template and sets of variables to the worker, and return its answer; a dead worker is replaced."""
    global _child
    request = {"source": source, "seconds": CPU_SECONDS, "limit": OUTPUT_LIMIT, "renders": renders}
    try:
        line = json.dumps(request).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError("D007", f"a conversation that JSON cannot express: {str(error)[:100]}") from None
    if len(line) > REQUEST_LIMIT:
        raise DataError("D008", f"a conversation of {len(line):,} bytes as JSON; the limit is {REQUEST_LIMIT:,}")
    with _lock:
        raw = _ask(line, WALL_SECONDS * len(renders))
    answer: dict[str, Any] = json.loads(raw)
    return answer


def _ask(line: bytes, seconds: float, earlier: int | None = None) -> bytes:
    """Return the worker's answer within `seconds`; `earlier` is the status of a worker that died on this request."""
    global _child
    if _child is not None and _child.poll() is not None:  # it was killed meanwhile
        stop(_child)
        _child = None
    _child = child = _child or _start()
    began = time.monotonic()
    try:
        raw = _round_trip(child, line, seconds)
    except BaseException:  # an interrupt: the next request must not receive this answer
        _child = None
        stop(child)
        raise
    if raw.endswith(b"\n"):
        return raw
    _child, status = None, stop(child)
    if not HAS_CPU_TIMER and time.monotonic() - began >= seconds:
        raise DataError("D008", f"chat template: no answer within {seconds:g} s")
    if not killed_from_outside(status, earlier):
        raise _exit_error(status)
    if earlier is None:
        return _ask(line, seconds, status)
    raise MemoryOrDiskError("M001", f"the process that renders chat templates was killed twice (status {status})")


def killed_from_outside(status: int, earlier: int | None) -> bool:
    """Whether something else killed a process, not its request; `earlier` is the status of a process with that request.

    The request is the cause if our limits ended the process, or if the same fault occurs twice. Other signals come from
    outside, for example from the system when it runs out of memory.
    """
    return status < 0 and -status not in LIMIT_SIGNALS and not (-status in FAULT_SIGNALS and status == earlier)


def _round_trip(child: subprocess.Popen[bytes], line: bytes, seconds: float) -> bytes:
    """Send a line and return the answer, incomplete if the worker died."""
    assert child.stdin is not None and child.stdout is not None
    timer = None if HAS_CPU_TIMER else threading.Timer(seconds, child.kill)  # a thread costs more than a render
    if timer is not None:
        timer.start()
    try:
        if line:
            child.stdin.write(line)
            child.stdin.flush()
        return child.stdout.readline()
    except BrokenPipeError:
        return b""
    finally:
        if timer is not None:
            timer.cancel()


def _start() -> subprocess.Popen[bytes]:
    if find_spec("jinja2") is None:
        raise NotFoundError("F003", "chat templates need the package jinja2", "pip install jinja2")
    child = spawn(WORKER, str(MEMORY))
    if _round_trip(child, b"", 60.0) != b"ready\n":
        raise MemoryOrDiskError("M001", f"the process that renders chat templates ended with status {stop(child)}")
    return child


def spawn(program: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start an interpreter with one of our programs for untrusted input, connected by pipes."""
    return subprocess.Popen(
        [sys.executable, "-P", "-s", str(program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ} | {"PYTHONPATH": _path()},
        start_new_session=True,  # Ctrl-C is for us alone
    )


def _path() -> str:
    return os.pathsep.join(place for place in sys.path if place)


def stop(child: subprocess.Popen[bytes]) -> int:
    """Kill a process and return its exit status, negative for a signal. May be called again."""
    child.kill()
    _close_pipes(child)
    return child.wait()


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()


def _exit_error(status: int) -> DataError:
    if status == -getattr(signal, "SIGPROF", 0):
        return DataError("D008", f"chat template: more than {CPU_SECONDS * 1000:.0f} ms for one conversation")
    return DataError("D008", f"chat template: the process that renders it ended with status {status}")


@atexit.register
def _close() -> None:
    """Wait for the worker at exit: it would end by itself, but Python warns about unwaited processes."""
    global _child
    if _child is not None:
        stop(_child)
    _child = None


def _reset_after_fork() -> None:
    """After a fork, the worker belongs to the parent, and the lock may never be released: start afresh."""
    global _child, _lock
    if _child is not None:
        _close_pipes(_child)
        _child.returncode = 0  # the parent waits for it
    _child, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
