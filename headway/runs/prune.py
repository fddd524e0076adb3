"""Files of finished runs that are no longer needed: found, shown, and deleted only on request. No torch here."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from headway.errors import ConfigError, HeadwayError
from headway.hub.checkpoint import checkpoints_of, step_folders
from headway.hub.run_names import is_running
from headway.hub.weights import writing
from headway.jsonfile import read_json
from headway.runs.history import History, disk_size

YOUNG = 3600
"""Seconds since the last change during which an unfinished file may still be being written."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A file or folder that is no longer needed."""

    path: Path
    reason: str
    size: int
    run: Path | None
    """The run that it belongs to; None for a file beside the runs."""


def find_leftovers(out: Path, runs: Sequence[History], broken: bool) -> list[Leftover]:
    """Old checkpoints of finished runs, and unfinished files; with `broken` also runs that cannot be resumed."""
    found = [item for run in runs if not is_running(run.folder) for item in _of_run(run, broken)]
    return found + [_leftover(path, "an unfinished folder", None) for path in _half_made(out, aged=True)]


def remove(items: Iterable[Leftover]) -> list[Leftover]:
    """Delete leftovers and return those deleted. A run that has been resumed meanwhile is not touched."""
    from headway.train.checkpoint import RunLock  # imports torch

    gone = []
    for item in items:
        if not os.path.lexists(item.path):
            continue
        whole_run = item.path == item.run
        with suppress(ConfigError), writing(item.path.parent, 0):  # another process holds the lock
            with RunLock(item.run / "run") if item.run else nullcontext():
                # Renamed first, so that a crash leaves no half-deleted folder under the name; the lock moves along.
                doomed = item.path.with_name(f"{item.path.name}.partial-{secrets.token_hex(8)}")
                item.path.rename(doomed)
                if not whole_run:
                    _delete(doomed)
            if whole_run:
                _delete(doomed)
            gone.append(item)
    return gone


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _of_run(run: History, broken: bool) -> Iterator[Leftover]:
    checkpoints = checkpoints_of(run.folder)
    steps = [path for path in step_folders(checkpoints) if not path.is_symlink()]
    came_to_nothing = run.status in ("broken", "diverged") or (run.status == "stopped" and not steps)
    if broken and came_to_nothing and not run.folder.is_symlink():
        if (run.folder / "run" / "log.jsonl").exists() or not _young(run.folder):  # a new run may be about to start
            why = "the loss was not finite" if run.status == "diverged" else "no checkpoint to resume from"
            yield _leftover(run.folder, f"{run.status}: {run.problem or why}", run.folder)
        return
    for path in _half_made(checkpoints, aged=False):
        yield _leftover(path, "an unfinished checkpoint", run.folder)
    for place in (run.folder, run.folder / "run"):
        for path in _half_made(place, aged=True):
            yield _leftover(path, "an unfinished file", run.folder)
    if run.status == "finished":
        newest = next((i for i, path in enumerate(steps) if _looks_whole(path)), len(steps))
        for path in steps[newest + 1 :]:
            yield _leftover(path, "an older checkpoint of a finished run", run.folder)


def _leftover(path: Path, reason: str, run: Path | None) -> Leftover:
    return Leftover(path=path, reason=reason, size=disk_size(path), run=run)


def _half_made(place: Path, aged: bool) -> list[Path]:
    """Files whose name says that they are unfinished; `aged` leaves out those that may still be being written."""
    found = sorted(p for p in place.glob("*.partial-*") if re.fullmatch(r".+\.partial-[0-9a-f]+", p.name))
    return [path for path in found if not (aged and _young(path)) and not path.is_symlink()]


def _looks_whole(path: Path) -> bool:
    """Whether every file has the size in the manifest; hashing would take as long as reading all of them."""
    try:
        files = read_json(path / "manifest.json")["files"]
        return bool(files) and all((path / name).stat().st_size == entry["size"] for name, entry in files.items())
    except (HeadwayError, OSError, LookupError, TypeError, AttributeError, ValueError):
        return False


def _young(path: Path) -> bool:
    """Whether anything in the folder changed recently."""
    places = [path, *(Path(at, name) for at, folders, files in os.walk(path) for name in (*folders, *files))]
    latest = 0.0
    for place in places:
        with suppress(OSError):
            latest = max(latest, place.lstat().st_mtime)
    return time.time() - latest < YOUNG
