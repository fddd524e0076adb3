"""A deleted run is moved aside, comes back whole, and goes for good later."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headway.errors import ConfigError, NotFoundError
from headway.hub.run_names import run_folders
from headway.runs.trash import KEPT, TRASH, discard, empty, restore
from headway.train.checkpoint import RunLock
from tests.runs.conftest import finished, write_run


def test_a_deleted_run_comes_back_whole(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished())  # a name that would make the trash look like a run
    before = {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*")}
    ticket = discard(folder)
    assert run_folders(tmp_path) == [] and not folder.exists()
    assert restore(tmp_path, ticket) == folder
    after = {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*")}
    assert {path: size for path, size in after.items() if path.name != "run.lock"} == before
    with pytest.raises(NotFoundError):
        restore(tmp_path, ticket)


def test_a_run_that_trains_is_not_deleted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished())
    with RunLock(folder / "run"), pytest.raises(ConfigError, match="in use"):
        discard(folder)
    assert folder.is_dir() and not (tmp_path / TRASH).exists()


def test_a_link_to_a_run_is_left_alone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "elsewhere" / "a", finished())
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ConfigError, match="link"):
        discard(tmp_path / "link")
    assert folder.is_dir()


def test_it_does_not_come_back_over_another_run(tmp_path: Path) -> None:
    ticket = discard(write_run(tmp_path / "a", finished()))
    write_run(tmp_path / "a", finished())
    with pytest.raises(ConfigError, match="another run"):
        restore(tmp_path, ticket)


@pytest.mark.parametrize("ticket", ["", ".", "..", "../a", "0" * 15, "g" * 16, "0" * 16])
def test_a_made_up_ticket_brings_nothing_back(tmp_path: Path, ticket: str) -> None:
    write_run(tmp_path / "a", finished())
    (tmp_path / TRASH / "000").mkdir(parents=True)
    with pytest.raises(NotFoundError):
        restore(tmp_path, ticket)


def test_the_trash_empties_itself_of_what_is_old(tmp_path: Path) -> None:
    old, new = discard(write_run(tmp_path / "a", finished())), discard(write_run(tmp_path / "b", finished()))
    (tmp_path / TRASH / "notes").mkdir()  # not ours
    os.utime(tmp_path / TRASH / old, (0, time.time() - KEPT - 5))
    empty(tmp_path)
    assert sorted(path.name for path in (tmp_path / TRASH).iterdir()) == sorted([new, "notes"])
    empty(tmp_path, age=-1)
    assert [path.name for path in (tmp_path / TRASH).iterdir()] == ["notes"]
    empty(tmp_path / "nowhere")
