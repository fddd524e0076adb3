"""Files that a page has sent: kept below the studio's own folder, under names that mean nothing to a shell."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

from headway.errors import MemoryOrDiskError, UsageError
from headway.resources import write_error

FOLDER = "uploads"
BATCH = re.compile(r"[0-9a-f]{12}")
MOST_BYTES, MOST_FILES = 2 << 30, 20_000
"""Of all uploads together. A run may need its data again, so nothing is deleted unasked."""
PARTS, LETTERS = 6, 100
"""Folders of a path, and letters of each name."""


def new_batch() -> str:
    """The name of a folder for files that belong together."""
    return uuid4().hex[:12]


def safe_path(name: str) -> Path:
    """A relative path that stays where it is put: letters, digits and a few signs, no hidden names, not too deep."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    kept = [_safe(part) for part in parts]
    if not kept or len(kept) > PARTS:
        raise UsageError("U001", f"an upload needs a name with 1 to {PARTS} parts", "put the files into fewer folders")
    return Path(*kept)


def _safe(part: str) -> str:
    """One name: marks of letters stay, other characters become a line."""
    plain = unicodedata.normalize("NFC", part)
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in plain).lstrip(".")
    stem, dot, ending = plain.rpartition(".")
    short = f"{stem[: LETTERS - len(ending) - 1]}{dot}{ending}" if dot and len(ending) < 16 else plain[:LETTERS]
    return short or "file"


async def keep(state: Path, batch: str, name: str, content: AsyncIterator[bytes]) -> Path:
    """Write an upload; returns its path."""
    if not BATCH.fullmatch(batch):
        raise UsageError("U001", "that is no name of an upload")
    root, inside = state / FOLDER, safe_path(name)
    path = root / batch / inside
    files = [each.stat().st_size for each in root.rglob("*") if each.is_file()] if root.is_dir() else []
    free = MOST_BYTES - sum(files)
    if len(files) >= MOST_FILES or free <= 0:
        what = f"the uploads in {root} have {sum(files) / 1e9:.1f} GB in {len(files):,} files"
        raise MemoryOrDiskError("M002", what, "delete those that no run needs, or name the path of your data instead")
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with partial.open("wb") as file:
            async for block in content:
                file.write(block)
        partial.replace(path)
    except OSError as error:
        raise write_error(path, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return path
