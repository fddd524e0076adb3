"""Runs that were deleted and can still be had back: they are moved aside first. No torch here."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

from headway.errors import ConfigError, NotFoundError
from headway.hub.weights import writing
from headway.jsonfile import show

TRASH = ".headway-trash"
"""The folder beside the runs; moving a run there is a rename, whatever its size."""
TICKET = re.compile(r"[0-9a-f]{16}")
KEPT = 900.0
"""Seconds that a deleted run can be had back."""


def discard(folder: Path) -> str:
    """Move a run to the trash, unless it is training. Returns the ticket to have it back."""
    from headway.train.checkpoint import RunLock  # imports torch

    if folder.is_symlink():
        raise ConfigError("C030", f"{show(folder.name)} is a link to a run elsewhere", "delete the link yourself")
    ticket = secrets.token_hex(8)
    place = folder.parent / TRASH / ticket
    with writing(folder.parent, 0), RunLock(folder / "run"):  # the lock moves along
        place.mkdir(parents=True)
        folder.rename(place / folder.name)
    return ticket


def restore(out: Path, ticket: str) -> Path:
    """Put a run back where it was."""
    place = out / TRASH / ticket
    found = list(place.iterdir()) if TICKET.fullmatch(ticket) and place.is_dir() else []
    if len(found) != 1:
        raise NotFoundError("F001", "the deleted run is no longer in the trash")
    back = out / found[0].name
    if back.exists():
        what = f"there is another run {show(back.name)} by now"
        raise ConfigError("C030", what, "rename or delete that one, then try again")
    with writing(out, 0):
        found[0].rename(back)
        place.rmdir()
    return back


def empty(out: Path, age: float = KEPT) -> None:
    """Delete for good what has been in the trash for so many seconds."""
    trash = out / TRASH
    with suppress(OSError):
        for place in trash.iterdir():
            if TICKET.fullmatch(place.name) and time.time() - place.stat().st_mtime > age:
                shutil.rmtree(place, ignore_errors=True)
        trash.rmdir()  # fails while it holds something
