"""The first line of a file of word vectors: how many there are, and how many numbers each has. No torch here."""

from __future__ import annotations

import os
import re
from pathlib import Path

SUFFIXES = (".bin", ".txt", ".vec")
"""Endings that files of word vectors have: binary, or text."""
FIRST_LINE = re.compile(rb"(\d{1,10}) (\d{1,6})[ \r]*\n")


def vectors_header(place: str | os.PathLike[str]) -> tuple[int, int] | None:
    """The number of words and of numbers; None for any other file."""
    path = Path(place)
    if path.suffix not in SUFFIXES or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            found = FIRST_LINE.match(file.read(24))
    except OSError:
        return None
    return (int(found[1]), int(found[2])) if found else None
