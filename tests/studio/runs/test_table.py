"""The list of runs reads what has changed, and nothing else."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.runs.history import read_run
from headway.studio.runs import table
from headway.studio.runs.live import LiveRuns
from headway.studio.runs.table import RunTable, small_curve
from tests.runs.conftest import event, finished, steps, write_run


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of runs that were read from the start."""
    found: list[str] = []

    def counted(folder: Path) -> Any:
        found.append(folder.name)
        return read_run(folder)

    monkeypatch.setattr(table, "read_run", counted)
    return found


def test_a_run_is_read_again_when_it_was_written_to(tmp_path: Path, read: list[str]) -> None:
    folders = [write_run(tmp_path / name, finished()) for name in ("a", "b")]
    rows = RunTable(tmp_path, LiveRuns())
    assert rows.rows()["a"]["best"] == 2.39 and sorted(read) == ["a", "b"]
    assert rows.rows() == rows.rows() and len(read) == 2
    with (folders[0] / "run" / "log.jsonl").open("a") as file:
        file.write(json.dumps(event("restart", step=100)) + "\n")
    assert rows.rows()["a"]["status"] == "stopped" and read[2:] == ["a"]


def test_a_run_that_is_gone_leaves_the_list(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished())
    rows = RunTable(tmp_path, LiveRuns())
    assert list(rows.rows()) == ["a"]
    folder.rename(tmp_path / "b")
    assert list(rows.rows()) == ["b"]


def test_the_first_answer_does_not_wait_for_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    for name in "abc":
        write_run(tmp_path / name, finished())
    monkeypatch.setattr(table, "BUDGETS", (-1.0, 9.0))
    rows = RunTable(tmp_path, LiveRuns())
    assert {row["status"] for row in rows.rows().values()} == {"unread"} and not read
    monkeypatch.setattr(table, "BUDGETS", (9.0, 9.0))
    assert {row["status"] for row in rows.rows().values()} == {"finished"}


def test_a_trainer_that_was_killed_is_noticed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [event("start", step=0), *steps(1, 50)], weights=False)
    rows = RunTable(tmp_path, LiveRuns())
    with (folder / "run" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert rows.rows()["a"]["status"] == "running" and rows.rows()["a"]["share"] == 0.5
    assert rows.rows()["a"]["status"] == "stopped"


def test_a_small_curve_is_short_and_has_the_shape() -> None:
    curve = small_curve(np.linspace(5, 1, 1000))
    known = [value for value in curve if value is not None]
    assert len(known) == table.POINTS and known == sorted(known, reverse=True)
    assert small_curve(np.array([np.nan, np.nan])) == [None, None] and small_curve(np.array([1.0])) == []
