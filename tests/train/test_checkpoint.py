"""Checkpoints: loaded bit for bit; damaged ones are skipped; a failed save leaves no trace."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.errors import ConfigError, DamagedError, DivergedError, HeadwayError, MemoryOrDiskError, NotFoundError
from headway.hub.checkpoint import sealed, verify
from headway.train import checkpoint
from headway.train.checkpoint import STAGES, RunLock, Snapshot, load, save, snapshot_copy
from tests.train.conftest import never
from tests.train.conftest import same_snapshot as same

STATE = {"tokens": 2**60, "loss": 0.1 + 0.2, "name": "é字😀", "best": None, "seeds": [1, 2], "nested": {"on": True}}


def example(step: int) -> Snapshot:
    """Different in every file at every step."""
    noise = torch.Generator().manual_seed(step)
    model = {
        "float32": torch.randn(3, 4, generator=noise),
        "bfloat16": torch.randn(5, generator=noise).bfloat16(),
        "float8": torch.randn(5, generator=noise).to(torch.float8_e4m3fn),
        "transposed": torch.randn(2, 3, generator=noise).T,
        "empty": torch.zeros(0, 3),
        "name with é, 字 and 😀": torch.ones(1),
    }
    optimizer = {
        "moment": torch.randn(3, 4, generator=noise, dtype=torch.float64),
        "step": torch.tensor(float(step)),
        "count": torch.tensor([-1, 2**62, step]),
        "mask": torch.tensor([True, False, True]),
    }
    rng = {"torch": torch.randint(256, (64,), generator=noise, dtype=torch.uint8), "nan": torch.tensor(float("nan"))}
    return Snapshot(step, {"model": model, "optimizer": optimizer, "rng": rng, "nothing": {}}, {**STATE, "at": step})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def fail_at(patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, number: int) -> None:
    """Let the given call of a function, counted from 1, fail with an OSError."""
    real, calls = getattr(owner, name), [0]

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    patch.setattr(owner, name, failing)


# What is saved and what comes back


def test_round_trip_is_bit_exact(tmp_path: Path) -> None:
    path = save(tmp_path / "new" / "checkpoints", example(7))
    assert path == tmp_path / "new" / "checkpoints" / "step-00000007"
    verify(path)
    loaded = load(path.parent, skipped=never)
    assert same(loaded, example(7))
    assert not same(loaded, example(8))
    assert names(path) == ["manifest.json", *(f"{s}.safetensors" for s in ("model", "nothing", "optimizer", "rng"))]
    assert json.loads((path.parent / "latest.json").read_text()) == {"folder": "step-00000007"}


def test_what_is_loaded_is_in_memory(tmp_path: Path) -> None:
    path = save(tmp_path, example(1))
    loaded = load(tmp_path, skipped=never)
    for file in path.iterdir():  # in place: a mapped tensor would see it, or the process would die of it
        file.write_bytes(bytes(file.stat().st_size))
    assert same(loaded, example(1))


def test_a_copy_does_not_see_later_changes(tmp_path: Path) -> None:
    live, state = example(3), {"counts": [1, 2]}
    snapshot = snapshot_copy(3, live.tensors, state)
    for named in live.tensors.values():
        for tensor in named.values():
            tensor.zero_()
    state["counts"].append(3)
    save(tmp_path, snapshot)
    assert same(load(tmp_path, skipped=never), Snapshot(3, example(3).tensors, {"counts": [1, 2]}))


def test_a_copy_of_a_parameter_is_plain() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    copied = snapshot_copy(0, {"model": {"w": weight, "tied": weight}}, {}).tensors["model"]
    assert not copied["w"].requires_grad
    assert len({tensor.data_ptr() for tensor in (weight, *copied.values())}) == 3


def test_nothing_there(tmp_path: Path) -> None:
    assert load(tmp_path / "nowhere", skipped=never) is None
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-00000009.partial-00ff").mkdir()
    assert load(tmp_path, skipped=never) is None


def test_the_newest_is_by_number_and_latest_is_a_hint_only(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000, 5):
        save(tmp_path, example(step), retention=9)
    (tmp_path / "latest.json").write_text('{"folder": "step-00000777"}')
    assert same(load(tmp_path, skipped=never), example(100_000_000))


@pytest.mark.parametrize("state", [{"betas": (0.9, 0.95)}, {1: 2}, {"loss": float("nan")}, {"half": "\ud800"}])
def test_a_state_that_json_would_change_is_refused(tmp_path: Path, state: dict[Any, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        save(tmp_path / "c", Snapshot(1, {}, state))
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("step", "stem", "retention"), [(-1, "model", 3), (1, "../model", 3), (1, "", 3), (1, "model", 0)]
)
def test_a_mistaken_call_writes_nothing(tmp_path: Path, step: int, stem: str, retention: int) -> None:
    with pytest.raises(ValueError):
        save(tmp_path / "c", Snapshot(step, {stem: {}}, {}), retention=retention)
    assert not (tmp_path / "c").exists()


# The order of things


def test_the_stages_come_in_order(tmp_path: Path) -> None:
    seen: list[str] = []
    save(tmp_path, example(1), stage=seen.append)
    assert len(STAGES) == 10
    assert list(dict.fromkeys(seen)) == list(STAGES)
    assert seen.count("write") == seen.count("file-fsync") == 4
    assert len(seen) == len(STAGES) + 2 * 3


def test_everything_is_on_disk_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    sync, rename, replace = os.fsync, Path.rename, Path.replace

    def base(path: Path | str) -> str:
        return Path(path).name.split(".partial-")[0] + (" (partial)" if ".partial-" in Path(path).name else "")

    def logged_sync(handle: int) -> None:
        log.append(f"fsync {base(os.readlink(f'/proc/self/fd/{handle}'))}")
        sync(handle)

    def logged_rename(path: Path, target: Path) -> Path:
        log.append(f"rename {base(path)} to {base(target)}")
        return rename(path, target)

    def logged_replace(path: Path, target: Path) -> Path:
        log.append(f"replace {base(path)} by {base(target)}")
        return replace(path, target)

    save(tmp_path / "c", Snapshot(1, {"model": {}}, {}))
    monkeypatch.setattr(os, "fsync", logged_sync)
    monkeypatch.setattr(Path, "rename", logged_rename)
    monkeypatch.setattr(Path, "replace", logged_replace)
    save(tmp_path / "c", Snapshot(2, {"model": {}, "rng": {}}, {}), retention=1)
    assert log == [
        "fsync model.safetensors",
        "fsync rng.safetensors",
        "fsync manifest.json",
        "fsync step-00000002 (partial)",
        "rename step-00000002 (partial) to step-00000002",
        "fsync c",
        "fsync latest.json (partial)",
        "replace latest.json (partial) by latest.json",
        "fsync c",
        "rename step-00000001 to step-00000001 (partial)",
    ]


# Retention and the same step twice


def test_retention_keeps_the_newest(tmp_path: Path) -> None:
    for step in range(1, 7):
        save(tmp_path, example(step))
    assert names(tmp_path) == ["latest.json", *(f"step-0000000{step}" for step in (4, 5, 6))]
    save(tmp_path, example(7), retention=1)
    assert names(tmp_path) == ["latest.json", "step-00000007"]


def test_retention_sweeps_what_dead_writers_left(tmp_path: Path) -> None:
    for name in ("step-00000003.partial-0a", "step-00000001.partial-ff", "step-00000002.damaged-0a", "mine.partial-0a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "latest.json.partial-0b").touch()
    save(tmp_path, example(4))
    assert names(tmp_path) == ["latest.json", "mine.partial-0a", "step-00000002.damaged-0a", "step-00000004"]


@pytest.mark.parametrize("retention", [1, 2])
def test_retention_never_drops_the_newest_that_verifies(tmp_path: Path, retention: int) -> None:
    def rot(stage: str) -> None:
        if stage == "retention":
            (tmp_path / "step-00000003" / "model.safetensors").write_bytes(b"")

    for step in (1, 2):
        save(tmp_path, example(step))
    save(tmp_path, example(3), retention=retention, stage=rot)
    skipped: list[Path] = []
    assert same(load(tmp_path, skipped=lambda path, why: skipped.append(path)), example(2))
    assert [path.name for path in skipped] == ["step-00000003"]
    assert len(names(tmp_path)) == 2 + retention


def test_retention_drops_nothing_when_nothing_verifies(tmp_path: Path) -> None:
    def rot(stage: str) -> None:
        if stage == "retention":
            for path in tmp_path.glob("step-*"):
                (path / "manifest.json").write_bytes(b"{}")

    for step in (1, 2):
        save(tmp_path, example(step))
    save(tmp_path, example(3), retention=1, stage=rot)
    assert len(names(tmp_path)) == 4


def test_the_same_step_again_changes_nothing(tmp_path: Path) -> None:
    first = save(tmp_path, example(1))
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in contents(tmp_path)}
    other = Snapshot(1, {"model": {"w": torch.ones(1)}}, {})
    assert save(tmp_path, other) == first
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in contents(tmp_path)} == before


@pytest.mark.parametrize("damage", ["flip", "empty", "file"])
def test_a_damaged_one_of_the_same_step_is_moved_aside(tmp_path: Path, damage: str) -> None:
    path = save(tmp_path, example(1))
    if damage == "flip":
        flip(path / "rng.safetensors", 100)
    else:
        shutil.rmtree(path)
        path.mkdir() if damage == "empty" else path.write_text("x")
    save(tmp_path, example(1))
    assert same(load(tmp_path, skipped=never), example(1))
    assert sum(".damaged-" in name for name in names(tmp_path)) == 1


# Damage


def flip(path: Path, bit: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)


def swap(path: Path) -> None:
    (path / "model.safetensors").rename(path / "x")
    (path / "optimizer.safetensors").rename(path / "model.safetensors")
    (path / "x").rename(path / "optimizer.safetensors")


def truncate(path: Path) -> None:
    with (path / "model.safetensors").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 1)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flip": (lambda path: flip(path / "model.safetensors", 4000), "SHA-256"),
    "flipped state": (lambda path: edit(path, '"at": 2', '"at": 3'), "its own SHA-256"),
    "the same state in other bytes": (lambda path: edit(path, "\\u00e9", "\\u00E9"), "its own SHA-256"),
    "truncation": (truncate, "bytes"),
    "longer": (lambda path: os.truncate(path / "rng.safetensors", 10_000), "10,000 bytes"),
    "missing": (lambda path: (path / "rng.safetensors").unlink(), "'rng.safetensors' is missing"),
    "extra": (lambda path: (path / "extra.txt").touch(), "'extra.txt' is not in the manifest"),
    "swapped": (swap, "model.safetensors"),
    "mixed": (lambda path: shutil.copy(path.with_name("step-00000001") / "rng.safetensors", path), "SHA-256"),
    "other step": (
        lambda path: shutil.copytree(path.with_name("step-00000001"), path, dirs_exist_ok=True),
        "step-00000001",
    ),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "manifest.json cannot be read: No such file"),
    "torn manifest": (lambda path: os.truncate(path / "manifest.json", 50), "not valid JSON"),
    "newer format": (lambda path: edit(path, '"format": 1', '"format": 2'), "format 2"),
    "a folder for a file": (lambda path: replace_by_folder(path / "rng.safetensors"), "Is a directory"),
    "a link to nowhere": (lambda path: (shutil.rmtree(path), path.symlink_to("nowhere")), "cannot be read"),
}


def edit(path: Path, old: str, new: str) -> None:
    text = (path / "manifest.json").read_text()
    assert text.count(old) == 1
    (path / "manifest.json").write_text(text.replace(old, new))


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_newest_is_passed_over_and_named(tmp_path: Path, kind: str) -> None:
    damage, reason = DAMAGES[kind]
    for step in (1, 2):
        save(tmp_path, example(step))
    damage(path := tmp_path / "step-00000002")
    skipped: list[tuple[Path, str]] = []
    assert same(load(tmp_path, skipped=lambda *args: skipped.append(args)), example(1))
    assert [where for where, _ in skipped] == [path]
    assert reason in skipped[0][1] and str(tmp_path) not in skipped[0][1]
    with pytest.raises(DamagedError) as caught:
        verify(path)
    assert caught.value.message == f"{path}: {skipped[0][1]}"


def test_when_all_are_damaged_each_is_named(tmp_path: Path) -> None:
    for step in (1, 2):
        truncate(save(tmp_path, example(step)))
    skipped: list[str] = []
    with pytest.raises(DamagedError) as caught:
        load(tmp_path, skipped=lambda path, why: skipped.append(path.name))
    assert skipped == ["step-00000002", "step-00000001"]
    assert caught.value.code == "X001"
    assert all(name in caught.value.message for name in skipped)


def test_one_that_goes_while_we_look_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, example(1))
    real = checkpoint.verify

    def late(path: Path) -> dict[str, Any]:
        if path.name == "step-00000001":
            save(tmp_path, example(2), retention=1)
        return real(path)

    monkeypatch.setattr(checkpoint, "verify", late)
    assert same(load(tmp_path, skipped=never), example(2))


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = save(tmp_path, example(1))
    dice = random.Random(0)
    flips = 0
    for file in sorted(path.iterdir()):
        bits = 8 * file.stat().st_size
        for bit in range(dice.randrange(13), bits, 13):
            flip(file, bit)
            with pytest.raises(DamagedError):
                verify(path)
            flip(file, bit)
            flips += 1
    verify(path)
    assert flips > 1000


@pytest.mark.parametrize(
    "manifest",
    [
        {"format": 1},
        {"format": 1, "step": 1, "files": {}},
        {"format": 1, "step": "1", "files": {}, "state": {}},
        {"format": 1, "step": 1, "files": [], "state": {}},
        {"format": 1, "step": 1, "files": {"model.safetensors": 3}, "state": {}},
        {"format": 1, "step": 1, "files": {"model.safetensors": {}}, "state": {}},
        {"format": 1, "step": 1, "files": {"../model.safetensors": {"size": 1, "sha256": ""}}, "state": {}},
    ],
)
def test_a_manifest_made_by_a_stranger_is_refused_in_one_line(tmp_path: Path, manifest: dict[str, Any]) -> None:
    path = save(tmp_path, Snapshot(1, {"model": {}}, {}))
    (path / "manifest.json").write_bytes(sealed(manifest))
    with pytest.raises(DamagedError) as caught:
        verify(path)
    assert "\n" not in caught.value.message


# Values that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e5m2])
@pytest.mark.parametrize("stem", ["model", "optimizer"])
def test_no_value_that_is_not_finite_is_saved(tmp_path: Path, stem: str, dtype: torch.dtype, value: float) -> None:
    good = torch.ones(2, 3)
    bad = good.clone()
    bad[1, 2] = value
    tensors = {"rng": {"a": bad}, stem: {"good": good, "first bad": bad.to(dtype), "second": bad}}
    with pytest.raises(DivergedError) as caught:
        save(tmp_path / "c", Snapshot(4, tensors, {}))
    assert caught.value.code == "T001"
    assert f"{stem} tensor 'first bad': 1 of 6 values" in caught.value.message
    assert not (tmp_path / "c").exists()


# The lock

HOLDER = """
import sys, time
from pathlib import Path
from headway.train.checkpoint import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_trainer_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError) as caught, RunLock(tmp_path):
            pytest.fail("two trainers in one folder")
        assert caught.value.code == "C030"
        assert f"process {holder.pid} on {os.uname().nodename} since 2" in caught.value.message
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with RunLock(tmp_path), pytest.raises(ConfigError, match=f"process {os.getpid()} "), RunLock(tmp_path):
        pytest.fail("two trainers in one process")
    with RunLock(tmp_path):
        pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("leaves", [False, True])
def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path, leaves: bool) -> None:
    ready, forked = os.pipe()
    with RunLock(tmp_path) as lock:
        worker = os.fork()
        if not worker:
            try:
                opened = os.open(os.devnull, os.O_RDONLY)  # takes the number that the lock had
                if leaves:  # the block, as when an error leads the worker out of it
                    lock.__exit__()
                os.fstat(opened)
                os.write(forked, b".")
                signal.pause()
            finally:
                os._exit(1)
        os.close(forked)
        assert os.read(ready, 1) == b"."
        with pytest.raises(ConfigError), RunLock(tmp_path):
            pytest.fail("the worker let go of its parent's lock")
    try:
        with RunLock(tmp_path):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        os.close(ready)


def test_a_lock_without_a_name_yet_still_holds(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        lock.path.write_bytes(b"")
        with pytest.raises(ConfigError, match="another process"), RunLock(tmp_path):
            pytest.fail("two trainers in one folder")


def test_a_lock_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotFoundError) as caught, RunLock(tmp_path / "file" / "run"):
        pass
    assert caught.value.code == "F007"


# Disks that refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Path, "mkdir", 1),
        *((Path, "open", call) for call in (1, 2, 5)),
        *((os, "fsync", call) for call in range(1, 7)),
        (Path, "rename", 1),
    ],
)
def test_a_disk_that_refuses_costs_only_this_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, number: int
) -> None:
    save(tmp_path, example(1))
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        fail_at(patch, owner, name, call, number)
        with pytest.raises(HeadwayError) as caught:
            save(tmp_path, example(2))
    expected = ("M002", 7, "full") if number == errno.ENOSPC else ("F007", 5, "read-only")
    assert (caught.value.code, caught.value.exit_code) == expected[:2] and expected[2] in caught.value.message
    assert contents(tmp_path) == before and names(tmp_path) == ["latest.json", "step-00000001"]
    save(tmp_path, example(2))
    assert same(load(tmp_path, skipped=never), example(2))


@pytest.mark.parametrize(("owner", "name", "call"), [(os, "fsync", 7), (os, "fsync", 8), (Path, "replace", 1)])
def test_a_disk_that_refuses_after_the_rename_leaves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    save(tmp_path, example(1))
    with monkeypatch.context() as patch:
        fail_at(patch, owner, name, call, errno.EIO)
        with pytest.raises(NotFoundError, match="F007"):
            save(tmp_path, example(2))
    assert names(tmp_path) == ["latest.json", "step-00000001", "step-00000002"]
    assert same(load(tmp_path, skipped=never), example(2))


def test_the_message_states_bytes_needed_and_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = {"model": {"w": torch.zeros(100_000)}, "optimizer": {"m": torch.zeros(100_000)}}
    usage = shutil.disk_usage(tmp_path)._replace(free=12_345)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    fail_at(monkeypatch, os, "fsync", 1, errno.ENOSPC)
    with pytest.raises(MemoryOrDiskError, match=r"No space left on device; 800,\d\d\d bytes needed, 12,345 free"):
        save(tmp_path, Snapshot(1, tensors, {}))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_may_not_grow(tmp_path: Path, share: float) -> None:
    """A real refusal by the system in the middle of a write, not an injected one."""
    tensors = {"model": {"w": torch.randn(50_000)}}
    path = save(tmp_path, Snapshot(1, tensors, {}))
    before = contents(tmp_path)
    limit, hard = int(share * (path / "model.safetensors").stat().st_size), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard[1]))
    try:
        with pytest.raises(MemoryOrDiskError):
            save(tmp_path, Snapshot(2, tensors, {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, hard)
    assert contents(tmp_path) == before
    assert same(load(tmp_path, skipped=never), Snapshot(1, tensors, {}))


def test_an_unreadable_folder_has_a_code(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HeadwayError, match="cannot be read"):
        load(tmp_path / "file", skipped=never)
    with pytest.raises(NotFoundError, match="F007"):
        save(tmp_path / "file", example(1))


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(stage: str) -> None:
        if stage == "manifest-write":
            raise KeyboardInterrupt

    save(tmp_path, example(1))
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, example(2), stage=interrupt)
    assert names(tmp_path) == ["latest.json", "step-00000001"]
