"""Commands of headway that the studio starts: trainings, comparisons. They outlive a page, and end in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from headway.errors import NotFoundError
from headway.runs.process import EXIT_FILE, PART

OUTPUT = 64 << 10
"""Bytes of a command's output that are kept: its end."""


@dataclass
class Job:
    """A command in a process of its own."""

    id: str
    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    output: Path
    exit: Path
    stopped: bool = field(default=False)

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.process.poll()

    def text(self) -> str:
        """The end of what it printed."""
        try:
            with self.output.open("rb") as file:
                file.seek(max(0, self.output.stat().st_size - OUTPUT))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def error(self) -> str:
        """Why it failed; empty if it did not."""
        if not self.code:
            return ""
        with suppress(OSError):
            return self.exit.read_text(encoding="utf-8").partition("\n")[2].strip()
        return ""

    def stop(self) -> None:
        """Ask it to save and end, as Ctrl-C does."""
        self.stopped = True
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def to_dict(self) -> dict[str, object]:
        return {
            "id": self.id, "words": list(self.words), "code": self.code, "output": self.text(),
            "error": self.error(), "stopped": self.stopped,
        }  # fmt: skip


class Jobs:
    """The commands that this studio has started, by id."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "jobs"
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, words: Sequence[str], *, cwd: Path | None = None) -> Job:
        """Start `headway WORDS …` in a process group of its own: a signal to the studio does not reach it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = uuid4().hex[:12]
        output, left = self.folder / f"{name}.txt", self.folder / f"{name}.exit"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "headway", *words],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, cwd=cwd,
                env={**os.environ, EXIT_FILE: str(left), PART: "1", "NO_COLOR": "1"},
            )  # fmt: skip
        job = Job(name, tuple(words), process, output, left)
        with self._lock:
            self._jobs[name] = job
        return job

    def get(self, name: str) -> Job:
        with self._lock:
            if name not in self._jobs:
                raise NotFoundError("F001", "the studio did not start this command, or was restarted since")
            return self._jobs[name]

    def all(self) -> list[Job]:
        with self._lock:
            return list(self._jobs.values())

    def close(self) -> None:
        """Runs go on without the studio; other commands have nobody left to tell, and end."""
        for job in self.all():
            if job.code is None and job.words[:1] != ("train",):
                job.stop()
