"""Checkpoints of a run, written: atomically, and by one process at a time; loaded to resume it.

    checkpoints/
      step-00000200/   model.safetensors  optimizer.safetensors  …  manifest.json
      step-00000300/
      latest.json      for people and scripts; headway does not read it

A name ending in `.partial-…` is a save that did not finish, or a checkpoint being deleted: the next save removes it.
One ending in `.damaged-…` was found broken when its step was saved again: it is kept for inspection.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.errors import ConfigError, DamagedError, DivergedError, HeadwayError
from headway.hub.checkpoint import (
    FORMAT_VERSION,
    MANIFEST,
    SUFFIX,
    Skipped,
    newest_sound,
    read_tensors,
    sealed,
    step_folders,
    verify,
)
from headway.hub.run_names import LOCK
from headway.hub.weights import sync_folder, tensor_chunks, writing
from headway.jsonfile import JSON_LIMIT, JSON_VALUES, parse_object, read_json, show

STAGES = (
    "snapshot", "write", "file-fsync", "manifest-write", "manifest-fsync", "rename", "parent-fsync", "latest",
    "retention", "done",
)  # fmt: skip
"""The stages of `save`, announced as each begins; `write` and `file-fsync` come once per file."""
LATEST = "latest.json"


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one step, with its own tensors: see `snapshot_copy`."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    """File stem such as "model", "optimizer" or "rng" → its tensors by name."""
    state: dict[str, Any]
    """Plain JSON values: counters and the record of what the run is made from."""


def snapshot_copy(step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Snapshot:
    """Copy all tensors to host memory, CPU tensors too, so that training may continue while the copy is written."""
    copies = {
        stem: {name: tensor.detach().to("cpu", copy=True) for name, tensor in named.items()}
        for stem, named in tensors.items()
    }
    return Snapshot(step, copies, copy.deepcopy(dict(state)))


def no_hook(stage: str) -> None:
    """The default of `stage`; tests pass a hook that kills the process."""


def save(folder: Path, snapshot: Snapshot, *, retention: int = 3, stage: Callable[[str], None] = no_hook) -> Path:
    """Write a checkpoint and delete old ones. A sound checkpoint of the same step is left as it is.

    The caller holds the run's `RunLock`: partial folders are leftovers of dead processes. A kill at any moment leaves
    the checkpoints that were there, with or without the new one.
    """
    _check_call(snapshot, retention)
    _check_finite(snapshot)
    files = {stem + SUFFIX: tensor_chunks(named) for stem, named in snapshot.tensors.items()}
    stage("snapshot")
    target = folder / f"step-{snapshot.step:08d}"
    with writing(folder, sum(size for size, _ in files.values())):
        if not folder.is_dir():
            folder.mkdir(parents=True)
            sync_folder(folder.parent)
        if os.path.lexists(target):
            if _is_sound(target):
                return target
            target.rename(f"{target}.damaged-{secrets.token_hex(8)}")
        with _partial(target) as partial:
            partial.mkdir()
            entries = {}
            for name, (_, chunks) in files.items():
                stage("write")
                entries[name] = _write(partial / name, chunks, stage, "file-fsync")
            stage("manifest-write")
            manifest = {"format": FORMAT_VERSION, "step": snapshot.step, "files": entries, "state": snapshot.state}
            _write(partial / MANIFEST, [sealed(manifest)], stage, "manifest-fsync")
            sync_folder(partial)
            stage("rename")
            partial.rename(target)
        stage("parent-fsync")
        sync_folder(folder)
        stage("latest")
        with _partial(folder / LATEST) as temporary:
            _write(temporary, [json.dumps({"folder": target.name}).encode() + b"\n"], no_hook, "")
            temporary.replace(folder / LATEST)
        sync_folder(folder)
        stage("retention")
        _retain(folder, retention)
        stage("done")
    return target


def load(folder: Path, *, skipped: Skipped) -> Snapshot | None:
    """Load the newest sound checkpoint; call `skipped` for each damaged one that is newer."""
    return newest_sound(folder, _read, skipped=skipped)


def _read(path: Path) -> Snapshot:
    manifest = verify(path)
    stems = [name.removesuffix(SUFFIX) for name in manifest["files"]]
    return Snapshot(manifest["step"], {stem: read_tensors(path, stem) for stem in stems}, manifest["state"])


class RunLock:
    """`with RunLock(folder):` makes this process the only one that trains there. A crash releases the lock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK

    def __enter__(self) -> RunLock:
        with writing(self.path.parent, 0):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                since = datetime.now().astimezone().isoformat(timespec="seconds")
                owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
                os.ftruncate(self._handle, 0)
                os.write(self._handle, json.dumps(owner).encode())
            except OSError as error:
                os.close(self._handle)
                raise self._taken() if isinstance(error, BlockingIOError) else error from None
        os.register_at_fork(after_in_child=self.__exit__)  # a worker that outlives its trainer must not hold the lock
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)  # the file stays: without it, two processes could each lock a new one
        self._handle = -1

    def _taken(self) -> ConfigError:
        try:
            owner = read_json(self.path)
            who = f"process {owner['pid']} on {owner['host']} since {owner['since']}"
        except (HeadwayError, KeyError):  # it has not written its name yet
            who = "another process"
        what = f"{show(self.path.parent)} is in use: {who} trains it"
        return ConfigError("C030", what, "wait for that process or stop it, or train in another folder")


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; what has this name is removed if the block fails."""
    partial = path.with_name(f"{path.name}.partial-{secrets.token_hex(8)}")
    try:
        yield partial
    except BaseException:
        with suppress(OSError):
            _remove(partial)
        raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check_call(snapshot: Snapshot, retention: int) -> None:
    """Find bugs of the caller before anything is written."""
    if retention < 1 or snapshot.step < 0:
        raise ValueError(f"retention={retention} must be at least 1, and step {snapshot.step} at least 0")
    if odd := [stem for stem in snapshot.tensors if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", stem)]:
        raise ValueError(f"{odd[0]!r} is not a plain file stem")
    raw = json.dumps({"state": snapshot.state}, allow_nan=False, indent=1).encode()
    if len(raw) > JSON_LIMIT // 2 or parse_object(raw, JSON_VALUES // 2)["state"] != snapshot.state:
        raise ValueError(f"the state must be plain JSON (lists, text as keys) of at most {JSON_LIMIT // 2:,} bytes")


def _check_finite(snapshot: Snapshot) -> None:
    for stem in ("model", "optimizer"):  # the state of a generator may look like NaN
        for name, tensor in snapshot.tensors.get(stem, {}).items():
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            plain = tensor.float() if tensor.element_size() == 1 else tensor  # torch tests no 8-bit floats
            if bad := tensor.numel() - int(torch.isfinite(plain).sum()):
                which = f"step {snapshot.step}: {stem} tensor {name!r}"
                what = f"{which}: {bad:,} of {tensor.numel():,} values are not finite"
                raise DivergedError("T001", what, "earlier checkpoints are intact: resume with a lower train.lr")


def _write(path: Path, chunks: Iterable[bytes | memoryview], stage: Callable[[str], None], sync: str) -> dict[str, Any]:
    """Write a file; the size and SHA-256 of the bytes in memory, not of what the disk stored."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        file.flush()
        stage(sync)
        os.fsync(file.fileno())
    return {"size": size, "sha256": digest.hexdigest()}


def _is_sound(path: Path) -> bool:
    with suppress(DamagedError):
        verify(path)
        return True
    return False


def _retain(folder: Path, retention: int) -> None:
    """Drop all but `retention` checkpoints, counted from the newest sound one. Sweep partial ones."""
    paths = step_folders(folder)
    if len(paths) > retention:
        sound = next((i for i, path in enumerate(paths) if _is_sound(path)), len(paths))
        for path in paths[sound + retention :]:
            with _partial(path) as dropped:  # a checkpoint that is half deleted must not have its name
                path.rename(dropped)
    for name in os.listdir(folder):
        if re.fullmatch(r"(step-[0-9]+|latest\.json)\.partial-[0-9a-f]+", name):
            _remove(folder / name)
