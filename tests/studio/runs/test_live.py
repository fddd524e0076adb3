"""A run that is read while it trains is the run that is read at its end."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import numpy as np
import pytest

from headway.runs.events import EventLog
from headway.runs.history import read_run
from headway.studio.runs import live
from headway.studio.runs.live import LiveRun, LiveRuns
from tests.runs.conftest import event, finished, steps, write_run


def grow(folder: Path, *raw: bytes) -> None:
    with (folder / "run" / "log.jsonl").open("ab") as file:
        file.write(b"".join(raw))


def test_what_has_been_added_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = [json.dumps(each).encode() + b"\n" for each in finished()]
    folder, seen = write_run(tmp_path / "r"), 0
    real = EventLog.add_all

    def counted(self: EventLog, events: object) -> None:
        nonlocal seen
        found = list(events)  # type: ignore[call-overload]
        seen += len(found)
        real(self, found)

    monkeypatch.setattr(EventLog, "add_all", counted)
    run = LiveRun(folder)
    grow(folder, *log[:40], log[40][:9])
    first = run.read()
    assert run.read() is first, "nothing has changed"
    grow(folder, log[40][9:], *log[41:])
    last = run.read()
    assert seen == len(log)
    whole = read_run(folder)
    assert last.facts == whole.facts and last.events == whole.events and last.samples == whole.samples
    assert all(np.array_equal(last.steps[name], whole.steps[name]) for name in whole.steps)
    assert len(first.evals) == 1, "what was handed out does not grow"


def test_a_new_log_in_its_place_is_read_from_the_start(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", steps(1, 50))
    run = LiveRun(folder)
    assert run.read().facts.steps == 50
    (folder / "run" / "log.jsonl").unlink()
    assert run.read().status == "broken"
    grow(folder, *(json.dumps(each).encode() + b"\n" for each in steps(1, 3)))
    assert run.read().facts.steps == 3
    (folder / "run" / "log.jsonl").write_text(json.dumps(steps(1, 1)[0]) + "\n")  # the same file, cut short
    assert run.read().facts.steps == 1


def test_a_trainer_that_was_killed_is_noticed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", [event("start", step=0), *steps(1, 5)], weights=False)
    with (folder / "run" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = LiveRun(folder)
        assert run.read().status == "running"
    assert run.read().status == "stopped"


def test_only_the_runs_asked_for_last_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEPT", 2)
    folders = [write_run(tmp_path / name, steps(1, 3)) for name in "abc"]
    runs = LiveRuns()
    a = runs.read(folders[0])
    assert runs.read(folders[0]) is a
    for folder in folders:
        runs.read(folder)
    assert runs.read(folders[0]) is not a
