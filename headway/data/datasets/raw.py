"""Files as bytes that need not be text: byte 200 is the character number 200 (Latin-1), so that nothing is lost.

Models then read and write such texts like others; `text.encode("latin-1")` gives the bytes back.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from headway.errors import NotFoundError
from headway.jsonfile import show, unreadable

RAW = "latin-1"
ALPHABET = bytes(range(256)).decode(RAW)
"""Every byte once."""
CHUNKS = 8
"""The most chunks of a file that a classifier learns from."""


def raw_files(spec: str) -> list[Path]:
    """The files of a path, a glob or a folder, whatever they hold; hidden ones are left out."""
    path = os.path.expanduser(spec)
    if os.path.isdir(path):
        below = (each for each in Path(path).rglob("*") if not each.name.startswith("."))
        found = sorted(each for each in below if each.is_file())
    else:
        found = [Path(name) for name in sorted(glob.glob(path, recursive=True)) if os.path.isfile(name)]
        found = found or ([Path(path)] if os.path.isfile(path) else [])
    if not found:
        raise NotFoundError("F001", f"{show(spec)}: no file", "give a file, a folder, or a glob in quotes")
    return found


def read_raw(path: Path, limit: int = -1) -> str:
    """The bytes of a file, or the first of them, as characters."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode(RAW)
    except OSError as error:
        raise unreadable(path, error) from None


def raw_key(spec: str) -> str:
    """Identifies the bytes of the files of a spec."""
    found = hashlib.sha256()
    for path in raw_files(spec):
        with path.open("rb") as file:
            found.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()} {path.stat().st_size}\n".encode())
    return found.hexdigest()


def raw_chunks(text: str, length: int) -> Iterator[str]:
    """Whole chunks of a text; a text that is shorter is one."""
    for start in range(0, max(1, len(text) - length + 1), length):
        if text:
            yield text[start : start + length]


def printable(text: str) -> str:
    """A text for people: characters that a terminal would act on are dots."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)
