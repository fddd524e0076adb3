"""Memory and disk: how much there is, and errors of others that say there was too little. No torch here."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import HeadwayError, MemoryOrDiskError

TOLD = (
    "out of memory",  # CUDA, HIP, MPS and the drivers below them
    "defaultcpuallocator",
    "not enough memory",
    "allocate memory",
    "alloc_failed",  # cuBLAS, cuDNN and their kin
    "bad_alloc",
)
"""What torch and the libraries below it write into an error when memory ran out."""
ASKED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]+ ?\w+)")
GPU = re.compile(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
VECTOR_BYTES = 64
"""The widest vector that a CPU loads (AVX-512): tensors of one-byte items have to start at a multiple of it."""
MEMINFO, CGROUPS, OWN_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def gigabytes(size: float) -> str:
    """1.2 GB; below a tenth of that in MB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, says that memory ran out."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in TOLD):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def as_headway_error(error: BaseException, hint: str = "") -> HeadwayError | None:
    """The same as an error of memory or disk, with figures; None for what has to do with neither."""
    if isinstance(error, HeadwayError):
        return None
    if is_out_of_memory(error):
        asked = _asked(error)
        said = f": {asked} more were asked for" if asked else ""
        there = _there(error)
        return MemoryOrDiskError(
            "M010", f"memory ran out{said}{there}", hint or "take less at a time, or a smaller model"
        )
    if isinstance(error, OSError) and error.errno in FULL:
        where = f"{error.filename}: " if error.filename else ""
        return MemoryOrDiskError("M002", f"{where}{error.strerror}", "make room, or take another folder")
    return None


def _there(error: BaseException) -> str:
    """How much there is: of a GPU by its own word, else of the machine."""
    if gpu := GPU.search(str(error)):
        return f"; the GPU has {gpu[1]}, of which {gpu[2]} are free"
    free = available_host_memory()
    return f"; this process can have {gigabytes(free)} more of the machine's memory" if free is not None else ""


def _asked(error: BaseException) -> str:
    """How much the allocation that failed was for, if the error says."""
    if found := ASKED.search(str(error)):
        size, unit = re.fullmatch(r"([\d.]+) ?(\w+)", found[1]).groups()  # type: ignore[union-attr]
        return gigabytes(float(size)) if unit == "bytes" else f"{size} {unit}"
    return _asked(error.__cause__) if error.__cause__ is not None else ""


@contextmanager
def memory_errors(hint: Callable[[], str]) -> Iterator[None]:
    """Around what may run out of memory; `hint` is asked what to do about it."""
    try:
        yield
    except Exception as error:
        if (
            not isinstance(error, HeadwayError)
            and is_out_of_memory(error)
            and (ours := as_headway_error(error, hint()))
        ):
            raise ours from error
        raise


def available_host_memory() -> int | None:
    """Bytes that this process can still have: of the machine, of its control groups, of its own limit; None: unknown.

    Swap counts, and so do caches that the system would give up: it is a bound, not a promise.
    """
    found = [size for size in (_machine(), _groups(), _limit()) if size is not None]
    return max(0, min(found)) if found else None


def _machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        return sum(int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    except (OSError, LookupError, ValueError):
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else -1
        return pages * os.sysconf("SC_PAGE_SIZE") if pages > 0 else None


def _groups() -> int | None:
    """What the control groups that this process is in leave, the outer ones too; version 2, or else 1."""
    found = []
    try:
        entries = [line.split(":", 2) for line in OWN_GROUP.read_text().splitlines()]
    except (OSError, ValueError):
        return None
    for _, kinds, own in entries:
        v2 = not kinds
        if not v2 and "memory" not in kinds.split(","):
            continue
        root = CGROUPS if v2 else CGROUPS / "memory"
        place = root / own.lstrip("/")
        for folder in (place, *place.parents):
            if folder == root or root in folder.parents:
                found.append(_left(folder, v2))
    return min((left for left in found if left is not None), default=None)


def _left(folder: Path, v2: bool) -> int | None:
    names = ("memory.max", "memory.current", "inactive_file") if v2 else (
        "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
    )  # fmt: skip
    try:
        limit, used = (int((folder / name).read_text()) for name in names[:2])  # "max" is no number, and no limit
        lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + next((int(value) for name, value in lines if name == names[2]), 0)
    except (OSError, ValueError):
        return None


def _limit() -> int | None:
    """What RLIMIT_AS leaves."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        return limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return limit
