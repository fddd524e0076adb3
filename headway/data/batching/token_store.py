"""Token stores: a corpus is tokenized once into a file, and every run maps that file into memory.

    header   JSON, padded with spaces, with its own SHA-256
    ids      uint16 or uint32 by the size of the vocabulary, padded to eight bytes
    starts   int64, one per document and one for the end
    digests  SHA-256 of each block of the ids, padding included

All numbers are little-endian. A file is written under a temporary name, synced and renamed; a file that fails its check
is built again. That loses nothing, so there is a warning only if the cache cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import secrets
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headway.data.batching.permutation import Index
from headway.data.batching.windows import Tokens, line_chunks
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.jsonfile import parse_object, show
from headway.progress import bar

FORMAT_VERSION = 1
"""Increases with every change of the layout or of the ids of a text."""
HEADER = 1024
BLOCK = 1 << 20
VERIFY_ALL_BELOW = 64_000_000
"""Bytes of a file up to which opening verifies every block; of a larger file it verifies VERIFIED_BLOCKS at random."""
VERIFIED_BLOCKS = 16
GROUP_CHARACTERS = 1 << 21
"""Characters that are tokenized in parallel."""
CACHE_LIMIT = 20_000_000_000
"""Bytes of all stores that are kept."""
SUFFIX = ".tokens"
STALE_SECONDS = 24 * 3600
"""Seconds without a write after which an unfinished file is deleted."""


@dataclass(frozen=True)
class TokenStore:
    """Documents as token ids: document d is ids[starts[d] : starts[d + 1]]. Both are read-only."""

    ids: Tokens
    starts: Index
    byte_count: int
    """UTF-8 bytes of the text, for bits per byte."""
    path: Path | None
    """The mapped file; None if the ids are in memory only."""


def cache_folder() -> Path:
    """$HEADWAY_CACHE/tokens, or else headway/tokens in the user's cache folder."""
    if own := os.environ.get("HEADWAY_CACHE"):
        return Path(own) / "tokens"
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "headway" / "tokens"


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def open_store(
    documents: Callable[[], Iterable[str]],
    tokenizer: Tokenizer,
    *,
    key: str,
    end: int | None,
    begin: tuple[int, ...] = (),
    cache: Path | None = None,
    warn: Callable[[str], None] = _warn,
) -> TokenStore:
    """Return the ids of all documents, each between `begin` and `end`, from the cache, or tokenized and cached.

    `key` is a hash of the documents' content; key and tokenizer identify the store. If the cache cannot be written, the
    ids stay in memory, and `warn` receives the reason.
    """
    if end is not None and not 0 <= end < tokenizer.vocab_size:
        raise ValueError(f"end = {end} is not one of {tokenizer.vocab_size} tokens")
    recipe = json.dumps([FORMAT_VERSION, key, end, tokenizer.backend.to_str(), *begin])
    name = hashlib.sha256(recipe.encode()).hexdigest()[:32] + SUFFIX
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")

    def parts() -> Iterator[_Part]:
        return _parts(documents(), tokenizer, (begin, () if end is None else (end,)), dtype)

    try:
        with _cache_io():
            path = (cache or cache_folder()) / name
        if (store := _open(path)) is not None:
            return store
        _write(path, parts())
        with _cache_io():
            if (store := _open(path)) is None:
                raise OSError(f"{path.name} is not what was written")
        prune(folder=path.parent)
        return store
    except _CacheError as refused:
        warn(f"the token cache cannot be used, so the tokens stay in memory: {refused}")
    return _in_memory(parts(), dtype)


def prune(limit_bytes: int = CACHE_LIMIT, folder: Path | None = None, suffix: str = SUFFIX) -> None:
    """Delete the least recently used stores beyond the limit, but never the newest; and stale unfinished files."""
    found: list[tuple[float, int, Path]] = []
    with suppress(OSError, RuntimeError):  # no folder yet, or no home folder
        for path in (folder or cache_folder()).iterdir():
            if path.suffix == suffix or re.search(rf"{re.escape(suffix)}\.partial-[0-9a-f]+$", path.name):
                with suppress(OSError):  # deleted by another process meanwhile
                    state = path.stat()
                    found.append((state.st_mtime, state.st_size, path))
    total = 0
    stores = sorted((entry for entry in found if entry[2].suffix == suffix), reverse=True)
    for number, (_, size, path) in enumerate(stores):
        total += size
        if number and total > limit_bytes:
            _remove(path)
    for used, _, path in found:
        if path.suffix != suffix and used < time.time() - STALE_SECONDS:
            _remove(path)


def _remove(path: Path) -> None:
    """Delete a file if possible: Windows refuses while it is mapped, elsewhere the mappings stay valid."""
    with suppress(OSError):
        path.unlink()


class _CacheError(Exception):
    """The cache cannot be read or written."""


@contextmanager
def _cache_io() -> Iterator[None]:
    """Convert errors of cache access only, so that errors in the documents are not mistaken for them."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home folder
        place = f"{show(error.filename)}: " if isinstance(error, OSError) and error.filename else ""
        raise _CacheError(f"{place}{getattr(error, 'strerror', None) or error}") from error


@dataclass(frozen=True)
class _Part:
    """Some of the ids, with the ends of documents among them, counted from the first id of all."""

    ids: Tokens
    ends: list[int]
    byte_count: int


def _parts(
    documents: Iterable[str],
    tokenizer: Tokenizer,
    around: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: np.dtype[Any],
) -> Iterator[_Part]:
    """Tokenize a group of texts at a time, so that memory is bounded and every core has work."""
    (begin, end), before = around, True
    tokens = 0
    with bar("tokenizing", unit="bytes") as tick:
        for texts, lasts in _groups(documents):
            rows, firsts = tokenizer.ids(texts), [before, *lasts][:-1]
            before = [before, *lasts][-1]
            if begin or end:
                parts = zip(rows, firsts, lasts, strict=True)
                rows = [[*(begin if first else ()), *ids, *(end if last else ())] for ids, first, last in parts]
            places = accumulate(map(len, rows), initial=tokens)
            next(places)
            ends = [place for place, last in zip(places, lasts, strict=True) if last]
            ids = np.fromiter(chain.from_iterable(rows), dtype=dtype)
            tokens += len(ids)
            size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
            yield _Part(ids, ends, size)
            tick(size)


def _groups(documents: Iterable[str]) -> Iterator[tuple[list[str], list[bool]]]:
    """Yield groups of chunks of documents, as `windows.tokenize` cuts them, and whether each is its document's last."""
    texts: list[str] = []
    lasts: list[bool] = []
    size = 0
    for document in documents:
        for text in line_chunks(document):
            if size >= GROUP_CHARACTERS:
                yield texts, lasts
                texts, lasts, size = [], [], 0
            texts.append(text)
            lasts.append(False)
            size += len(text) + 1  # a group must end even if documents are empty
        lasts[-1] = True
    yield texts, lasts


def _in_memory(parts: Iterable[_Part], dtype: np.dtype[Any]) -> TokenStore:
    pieces, starts, byte_count = [np.empty(0, dtype)], array("q", [0]), 0
    for part in parts:
        pieces.append(part.ids)
        starts.extend(part.ends)
        byte_count += part.byte_count
    ids, all_starts = np.concatenate(pieces), np.array(starts, dtype="<i8")
    ids.flags.writeable = all_starts.flags.writeable = False
    return TokenStore(ids, all_starts, byte_count, None)


def _write(path: Path, parts: Iterable[_Part]) -> None:
    """Write the file under a temporary name and rename it, so that the name always means a complete store."""
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(8)}")
    with _cache_io():
        path.parent.mkdir(parents=True, exist_ok=True)
        file = partial.open("xb")
    try:
        header = _write_body(file, parts)
        with _cache_io():
            file.seek(0)
            file.write(_header_bytes({"name": path.stem, **header}))
            file.flush()
            os.fsync(file.fileno())
            file.close()
            partial.replace(path)
    except BaseException:
        with suppress(OSError):  # closing may try to write the buffer
            file.close()
        _remove(partial)
        raise


def _write_body(file: BinaryIO, parts: Iterable[_Part]) -> dict[str, Any]:
    """Write everything after the header; returns the header's fields."""
    pending, digests, starts = bytearray(), bytearray(), array("q", [0])
    item = byte_count = 0

    def flush(size: int) -> None:
        block = bytes(pending[:size])
        del pending[:size]
        digests.extend(hashlib.sha256(block).digest())
        with _cache_io():
            file.write(block)

    with _cache_io():
        file.write(b" " * HEADER)
    for part in parts:
        pending += part.ids.tobytes()
        starts.extend(part.ends)
        item, byte_count = part.ids.itemsize, byte_count + part.byte_count
        while len(pending) >= BLOCK:
            flush(BLOCK)
    pending += bytes(-len(pending) % 8)
    if pending:
        flush(BLOCK)
    places = np.array(starts, dtype="<i8").tobytes()
    with _cache_io():
        file.write(places)
        file.write(digests)
    facts = {"tokens": starts[-1], "item": item, "documents": len(starts) - 1, "bytes": byte_count}
    return {**facts, "starts": hashlib.sha256(places).hexdigest(), "digests": hashlib.sha256(digests).hexdigest()}


def _header_bytes(header: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    return json.dumps({**header, "sha256": digest}).encode().ljust(HEADER)


def _open(path: Path) -> TokenStore | None:
    """Return the store in a file, or None if it is missing or damaged."""
    try:
        with path.open("rb") as file:
            header = _verified(file, path.stem)
            raw = np.memmap(file, dtype=np.uint8, mode="r")
        item, tokens, documents = header["item"], header["tokens"], header["documents"]
        ids = raw[HEADER:][: tokens * item].view(f"<u{item}")
        starts = raw[HEADER + _padded(tokens * item) :][: 8 * (documents + 1)].view("<i8")
    except (OSError, ValueError, TypeError, LookupError):  # TypeError, LookupError: a forged header
        return None
    with suppress(OSError):  # a file of another user
        os.utime(path)  # for `prune`
    return TokenStore(ids, starts, header["bytes"], path)


def _padded(size: int) -> int:
    return size + -size % 8


def _verified(file: BinaryIO, name: str) -> dict[str, Any]:
    """Return the header after checking sizes and digests. Reads instead of mapping: a bad disk then raises an error."""
    raw = file.read(HEADER)
    header = parse_object(raw, HEADER)
    header.pop("sha256", None)
    if raw != _header_bytes(header) or header["name"] != name:
        raise ValueError("not the header of this store")
    ids, starts = _padded(header["tokens"] * header["item"]), 8 * (header["documents"] + 1)
    blocks = -(-ids // BLOCK)
    size = HEADER + ids + starts + 32 * blocks
    if os.fstat(file.fileno()).st_size != size:
        raise ValueError(f"not of {size} bytes")
    file.seek(HEADER + ids)
    if hashlib.sha256(file.read(starts)).hexdigest() != header["starts"]:
        raise ValueError("starts are damaged")
    digests = file.read(32 * blocks)
    if hashlib.sha256(digests).hexdigest() != header["digests"]:
        raise ValueError("digests are damaged")
    chosen = (
        range(blocks)
        if size < VERIFY_ALL_BELOW
        else random.Random().sample(range(blocks), min(blocks, VERIFIED_BLOCKS))
    )
    for block in chosen:  # other blocks at each opening, without using the user's random state
        file.seek(HEADER + block * BLOCK)
        if hashlib.sha256(file.read(min(BLOCK, ids - block * BLOCK))).digest() != digests[32 * block : 32 * block + 32]:
            raise ValueError(f"block {block} is damaged")
    return header
