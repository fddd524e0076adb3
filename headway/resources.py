"""Memory and disk: how much is available, and out-of-memory errors of other libraries. No torch here."""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import HeadwayError, MemoryOrDiskError, NotFoundError

OUT_OF_MEMORY = (
    "out of memory",  # CUDA, HIP, MPS and the drivers below them
    "defaultcpuallocator",
    "not enough memory",
    "allocate memory",
    "alloc_failed",  # cuBLAS, cuDNN and similar
    "bad_alloc",
)
"""What the errors of torch and the libraries below it contain when memory ran out."""
REQUESTED = re.compile(r"(?:[Tt]ried to allocate|Unable to allocate) ([\d.]+ ?\w+)")
GPU = re.compile(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free")
DISK_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota of disk space is used up",
    errno.EFBIG: "a file may not be this large here (see ulimit -f)",
}
"""Too little room for a file: why."""
REFUSED = {
    errno.EACCES: ("no permission", "choose a folder of your own, or change its permissions"),
    errno.EPERM: ("no permission", "choose a folder of your own, or change its permissions"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter name"),
    errno.EISDIR: ("it is a folder, not a file", "give the name of a file"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "choose another folder"),
    errno.EEXIST: ("a file has this name", "choose another name"),
}
"""Other reasons why a path cannot be written: why, and what to do."""
VECTOR_BYTES = 64
"""The widest vector that a CPU loads (AVX-512): tensors of one-byte items have to start at a multiple of it."""
MEMINFO, CGROUPS, OWN_GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def gigabytes(size: float) -> str:
    """A size as text: 1.2 GB; below 0.1 GB in MB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or its cause, says that memory ran out."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in OUT_OF_MEMORY):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def as_headway_error(error: BaseException, hint: str = "") -> HeadwayError | None:
    """An error of memory, disk or permissions as a `HeadwayError` with numbers; None for other errors."""
    if isinstance(error, HeadwayError):
        return None
    if is_out_of_memory(error):
        requested = _requested(error)
        said = f": an allocation of {requested} failed" if requested else ""
        return MemoryOrDiskError(
            "M010", f"memory ran out{said}{_available(error)}", hint or "use a smaller batch, or a smaller model"
        )
    if isinstance(error, OSError) and (error.errno in DISK_FULL or (error.errno in REFUSED and error.filename)):
        return write_error(error.filename or "the output", error, "cannot be used")
    return None


def write_error(path: object, error: OSError, what: str = "cannot be written", room: str = "") -> HeadwayError:
    """The error for a path that cannot be written: the disk is full (M002), or another reason by its name (F007).

    `room` says how much space is needed and free.
    """
    path, number = error.filename or path, error.errno or 0
    if number in DISK_FULL:
        why = f"{DISK_FULL[number]}: {error.strerror}{room}"
        return MemoryOrDiskError("M002", f"{path} {what}: {why}", "free some space, or choose another folder")
    if number == errno.ENOENT:
        folder = os.path.dirname(str(path)) or "."
        return NotFoundError("F007", f"{path} {what}: there is no folder {folder}", f"mkdir -p {shlex.quote(folder)}")
    why, hint = REFUSED.get(number, (error.strerror or str(error), "choose another folder"))
    return NotFoundError("F007", f"{path} {what}: {why}", hint)


def _available(error: BaseException) -> str:
    """How much memory is available: of the GPU, if the error says so, else of the machine."""
    if gpu := GPU.search(str(error)):
        return f"; the GPU has {gpu[1]}, {gpu[2]} of it free"
    free = available_host_memory()
    return f"; {gigabytes(free)} of memory are available to this process" if free is not None else ""


def _requested(error: BaseException) -> str:
    """The size of the allocation that failed, if the error says it."""
    if found := REQUESTED.search(str(error)):
        size, unit = re.fullmatch(r"([\d.]+) ?(\w+)", found[1]).groups()  # type: ignore[union-attr]
        return gigabytes(float(size)) if unit == "bytes" else f"{size} {unit}"
    return _requested(error.__cause__) if error.__cause__ is not None else ""


@contextmanager
def memory_errors(hint: Callable[[], str]) -> Iterator[None]:
    """Turn an out-of-memory error of the block into a `HeadwayError`; `hint` returns what to do about it."""
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
    """Bytes that this process can still allocate, by the machine, its control groups and its own limit; None: unknown.

    Swap counts, and so do caches that the system would free: it is an upper bound, not a promise.
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
    """What the control groups of this process and the groups around them leave; version 2 or 1."""
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
        limit, used = (
            int((folder / name).read_text()) for name in names[:2]
        )  # "max" is not a number, and means no limit
        lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return limit - used + next((int(value) for name, value in lines if name == names[2]), 0)
    except (OSError, ValueError):
        return None


def _limit() -> int | None:
    """What the process limit RLIMIT_AS leaves."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        return limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return limit


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before its content is computed."""
    number = 0
    if path.is_dir():
        number = errno.EISDIR
    elif not path.parent.is_dir():
        number = errno.ENOENT
    elif not os.access(path.parent, os.W_OK):
        number = errno.EACCES
    if number:
        raise write_error(path, OSError(number, os.strerror(number)))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside `path` to write to; after the block it takes that name, and after an error it is removed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.umask(mask := os.umask(0))  # reading the mask sets it
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def save_text(path: str, text: str) -> None:
    """Write a file that the user asked for."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise write_error(path, error) from None
