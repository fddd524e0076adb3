"""SHA-256 of data files, of what a packed file holds: packing it again changes nothing."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, NamedTuple

from headway.data.files.lines import GZIP_FREE, GZIP_RATIO
from headway.data.files.locate import file_format, find_files, on_disk
from headway.jsonfile import unreadable
from headway.progress import bar

CHUNK = 1 << 20


class Content(NamedTuple):
    """What a file holds."""

    sha256: str
    size: int
    lines: int


Tick = Callable[[int], None]
"""Counts the bytes that are done."""
_Key = tuple[str, int, int]
_known: ContextVar[dict[_Key, Content] | None] = ContextVar("known", default=None)


@contextmanager
def hash_once() -> Iterator[None]:
    """Inside the block each file is hashed once, as long as its size and its time of change stay the same."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def file_content(path: Path) -> Content:
    """The digest of a file's content, unpacked; of a damaged archive, the digest of its bytes."""
    known, path = _known.get(), on_disk(path)
    try:
        state = path.stat()
        key = (str(path), state.st_size, state.st_mtime_ns)
        if known is not None and key in known:
            return known[key]
        packed = file_format(path)[1]
        with bar(f"hashing {path.name}", None if packed else state.st_size, "bytes") as tick:
            found = _unpacked(path, state.st_size, tick) if packed else None
            if found is None:
                with path.open("rb") as file:
                    found = _hashed(file, tick)
    except OSError as error:
        raise unreadable(path, error) from None
    assert found is not None, "a plain file has no limit"
    if known is not None:
        known[key] = found
    return found


def fingerprint(spec: str) -> str:
    """SHA-256 over the contents of the files, in order, and their names from the folder they have in common."""
    files = find_files(spec)
    root = os.path.commonpath([path.parent for path in files])
    total = hashlib.sha256()
    for path in files:
        name = os.path.relpath(path, root).replace(os.sep, "/").encode("utf-8", "surrogateescape")
        content = bytes.fromhex(file_content(path).sha256)
        total.update(hashlib.sha256(name).digest() + content)  # of fixed length: no name runs into a content
    return total.hexdigest()


def _unpacked(path: Path, size: int, tick: Tick) -> Content | None:
    """None if the archive is damaged, or larger than its reader would accept."""
    with suppress(gzip.BadGzipFile, EOFError, zlib.error), gzip.open(path) as file:
        return _hashed(file, tick, max(GZIP_FREE, GZIP_RATIO * size))
    return None


def _hashed(file: IO[bytes] | gzip.GzipFile, tick: Tick, limit: float = math.inf) -> Content | None:
    """None beyond `limit` bytes."""
    digest, size, lines = hashlib.sha256(), 0, 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        tick(len(chunk))
        size, lines = size + len(chunk), lines + chunk.count(b"\n")
        if size > limit:
            return None
    return Content(digest.hexdigest(), size, lines)
