"""A command of headway in a process of its own, how it ended, and how it is stopped. No torch here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from headway.errors import ConfigError, HeadwayError
from headway.hub.run_names import LOCK, is_running
from headway.jsonfile import read_json, show

EXIT_FILE = "HEADWAY_EXIT_FILE"
"""The file in which a process leaves its exit code and, below it, its error."""
PART = "HEADWAY_PART"
"""Set for a command that another command starts: it leaves out what a person would do next."""
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    """Below zero: the signal that killed it."""
    error: str = ""
    output: str = ""
    stopped_by: int = 0
    """The signal that this process received meanwhile, and handed on."""

    @property
    def reason(self) -> str:
        """Why it failed, in one line."""
        if self.error:
            return self.error.splitlines()[0]
        if self.code == -signal.SIGKILL:
            return "killed (signal 9): perhaps the machine ran out of memory"
        return f"killed (signal {-self.code})" if self.code < 0 else f"ended with exit code {self.code}"


def run_command(words: Sequence[str]) -> Ended:
    """Run a command of headway in a process of its own, and hand on the signals that come meanwhile."""
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        left = Path(folder) / "exit"
        env: Mapping[str, str] = {**os.environ, EXIT_FILE: str(left), PART: "1"}
        line = [sys.executable, "-m", "headway", *words]
        child = subprocess.Popen(line, env=env, start_new_session=True, stdout=subprocess.PIPE, text=True)
        with _handed_on(child) as received:
            output, _ = child.communicate()
        told = left.read_text(encoding="utf-8") if left.exists() else ""
    return Ended(child.returncode, told.partition("\n")[2].strip(), output, received[0] if received else 0)


def stop_trainer(folder: Path) -> None:
    """Ask the process that trains in a folder to save and end, as Ctrl-C does. It says in the run's lock who it is."""
    if not is_running(folder):
        raise ConfigError("C030", f"{show(folder.name)} is not training", "reload: it may have ended by itself")
    try:
        owner = read_json(folder / "run" / LOCK)
        pid, host = int(owner["pid"]), str(owner["host"])
        if pid < 2:  # 0 and below mean many processes
            raise ValueError(pid)
    except (HeadwayError, KeyError, TypeError, ValueError):
        raise ConfigError("C030", f"{show(folder.name)}: its lock names no process", "try again in a moment") from None
    if host != socket.gethostname():
        what = f"{show(folder.name)} is trained on another machine, {show(host)}"
        raise ConfigError("C030", what, f"stop process {pid} there: kill -INT {pid}")
    try:
        os.kill(pid, signal.SIGINT)
    except (ProcessLookupError, PermissionError, OverflowError) as error:
        what = f"{show(folder.name)}: process {pid} cannot be stopped: {error}"
        raise ConfigError("C030", what, "stop it where it was started") from None


@contextmanager
def _handed_on(child: subprocess.Popen[str]) -> Iterator[list[int]]:
    """Hand signals on to a child, which ends in order; yields those that came. No other thread may handle signals."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)

    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handle) for number in INTERRUPTS} if here else {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if child.poll() is None:  # an exception of ours: no run goes on unseen
            child.terminate()
            child.wait()
