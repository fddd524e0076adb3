"""The process that trains is asked to end, and no other one."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import ConfigError
from headway.runs.process import stop_trainer
from tests.runs.conftest import finished, write_run

TRAINER = """
import fcntl, json, os, signal, socket, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": "now"}, lock)
lock.flush()
print("locked", flush=True)
signal.sigwait({signal.SIGINT})
print("asked to end", flush=True)
"""


def test_the_trainer_is_asked_to_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished())
    code = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n" + TRAINER
    words = [sys.executable, "-c", code, str(folder / "run" / "run.lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == "locked\n"
        stop_trainer(folder)
        assert trainer.stdout.readline() == "asked to end\n"


def test_a_lock_that_nobody_holds_names_nobody(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished())
    owner = {"pid": os.getpid(), "host": socket.gethostname()}
    (folder / "run" / "run.lock").write_text(json.dumps(owner))  # its process has ended; the number is ours by now
    with pytest.raises(ConfigError, match="not training"):
        stop_trainer(folder)


@pytest.mark.parametrize(
    ("owner", "match"),
    [
        ({"pid": 7, "host": "elsewhere"}, "another machine"),
        ({"pid": 2**22 + 7, "host": socket.gethostname()}, "cannot be stopped"),
        ({"pid": "x", "host": socket.gethostname()}, "names no process"),
        ({}, "names no process"),
        ({"pid": -1, "host": socket.gethostname()}, "names no process"),
        ({"pid": 0, "host": socket.gethostname()}, "names no process"),
    ],
)
def test_no_other_process_gets_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: dict[str, object], match: str
) -> None:
    folder, real, hit = write_run(tmp_path / "a", finished()), os.kill, []

    def kill(pid: int, number: int) -> None:
        hit.append(pid)
        real(pid, 0 if pid < 2**22 else number)

    monkeypatch.setattr("headway.runs.process.os.kill", kill)
    with (folder / "run" / "run.lock").open("w") as lock:
        json.dump(owner, lock)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match=match):
            stop_trainer(folder)
    assert all(pid >= 2**22 for pid in hit), "-1 and 0 mean many processes"
