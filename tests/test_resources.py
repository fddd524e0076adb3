"""How much memory is available, and which errors of other libraries say that it ran out."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from headway import resources
from headway.errors import DataError, MemoryOrDiskError
from headway.resources import as_headway_error, available_host_memory, is_out_of_memory, memory_errors, write_error


def cpu_error() -> BaseException:
    """What torch really raises: more than any address space holds."""
    try:
        torch.empty(1 << 61, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError


def array_error() -> BaseException:
    try:
        np.empty(1 << 61, dtype=np.uint8)
    except MemoryError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        cpu_error(),
        array_error(),
        MemoryError(),
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total of …"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be …"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.00 GB)"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_ran_out_is_no_bug_of_ours(error: BaseException) -> None:
    found = as_headway_error(error)
    assert isinstance(found, MemoryOrDiskError) and (found.code, found.exit_code) == ("M010", 7)
    wrapped = RuntimeError("backend='inductor' raised")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


def test_the_message_has_the_sizes() -> None:
    found = as_headway_error(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0"))
    assert found is not None and "2.50 GiB" in found.message
    told = (
        "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has a total capacity of 79.2 GiB of which 1.3 GiB is free."
    )
    found = as_headway_error(torch.cuda.OutOfMemoryError(told))
    assert found is not None and "79.2 GiB" in found.message and "1.3 GiB" in found.message
    found = as_headway_error(
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes.")
    )
    assert found is not None and "8.0 GB" in found.message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_bug_of_ours(number: int) -> None:
    found = as_headway_error(OSError(number, "No space left on device", "runs/x"))
    assert isinstance(found, MemoryOrDiskError) and found.code == "M002" and "runs/x" in found.message


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("memory"), DataError("D001", "x")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert as_headway_error(error) is None
    with pytest.raises(type(error)) as caught, memory_errors(lambda: "less"):
        raise error
    assert caught.value is error


def test_the_hint_is_asked_for_when_memory_ran_out() -> None:
    with pytest.raises(MemoryOrDiskError) as caught, memory_errors(lambda: "train.accumulate=8"):
        raise MemoryError
    assert caught.value.hint == "train.accumulate=8"


def test_there_is_some_memory_and_not_more_than_the_machine_has() -> None:
    free = available_host_memory()
    assert free is not None and free > 0


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 8 GB, a quarter of it in use, in files."""
    (tmp_path / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\nSwapFree: 0 kB\n")
    monkeypatch.setattr(resources, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(resources, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(resources, "OWN_GROUP", tmp_path / "own")
    return tmp_path


def test_control_groups_of_the_second_version(machine: Path) -> None:
    assert available_host_memory() == 6_000_000 * 1024
    (machine / "own").write_text("0::/jobs/mine\n")
    put(
        machine / "cgroup" / "jobs" / "mine", memory__max="max\n", memory__current="5", memory__stat="inactive_file 1\n"
    )
    assert available_host_memory() == 6_000_000 * 1024
    put(
        machine / "cgroup" / "jobs",
        memory__max="1000",
        memory__current="900",
        memory__stat="file 9\ninactive_file 50\n",
    )
    assert available_host_memory() == 150  # an outer group counts, and what its cache would give up


def test_control_groups_of_the_first_version(machine: Path) -> None:
    (machine / "own").write_text("4:cpu,memory:/mine\n0::/\n")
    stat = {"memory__stat": "total_inactive_file 20\n"}
    put(machine / "cgroup" / "memory" / "mine", memory__limit_in_bytes="500", memory__usage_in_bytes="100", **stat)
    assert available_host_memory() == 420


def test_a_limit_of_the_process_counts(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resources.resource, "getrlimit", lambda which: (used + 10_000_000, -1))
    free = available_host_memory()
    assert free is not None and 0 <= free <= 20_000_000


@pytest.mark.parametrize(
    ("number", "code", "exit_code", "word"),
    [
        (errno.EACCES, "F007", 5, "permission"),
        (errno.EPERM, "F007", 5, "permission"),
        (errno.EROFS, "F007", 5, "read-only"),
        (errno.ENAMETOOLONG, "F007", 5, "too long"),
        (errno.EISDIR, "F007", 5, "folder"),
        (errno.ENOTDIR, "F007", 5, "file"),
        (errno.EIO, "F007", 5, "Input/output"),
        (errno.ENOSPC, "M002", 7, "full"),
        (errno.EDQUOT, "M002", 7, "quota"),
        (errno.EFBIG, "M002", 7, "large"),
    ],
)
def test_why_a_path_cannot_be_written(number: int, code: str, exit_code: int, word: str) -> None:
    found = write_error("there/x", OSError(number, os.strerror(number)))
    assert (found.code, found.exit_code) == (code, exit_code)
    assert "there/x" in found.message and word in found.message and found.hint


def test_a_path_that_really_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = {"file/x": "file, not a folder", "": "is a folder", "x" * 300: "too long", "no/x": "mkdir"}
    for name, word in words.items():
        path = tmp_path / name
        with pytest.raises(OSError) as caught:
            path.write_text("")
        found = write_error(path, caught.value)
        assert found.code == "F007" and word in f"{found.message} {found.hint}" and str(path) in found.message
