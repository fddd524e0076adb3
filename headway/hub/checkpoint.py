"""Checkpoints of a run, read: which steps there are, what they hold, whether they are sound. No torch here."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headway.errors import DamagedError, HeadwayError
from headway.hub.weights import open_file
from headway.jsonfile import JSON_LIMIT, JSON_VALUES, parse_object, show, unreadable

if TYPE_CHECKING:
    from torch import Tensor

FORMAT_VERSION = 1
MANIFEST, SUFFIX = "manifest.json", ".safetensors"
STEP = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,17})")
"""The name of a checkpoint's folder."""
Skipped = Callable[[Path, str], None]
"""Called with each damaged checkpoint, and why it is not used."""
T = TypeVar("T")


def checkpoints_of(run: Path) -> Path:
    """The folder of a run's checkpoints."""
    return run / "run" / "checkpoints"


def step_folders(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    try:
        names = os.listdir(folder) if os.path.lexists(folder) else []
    except OSError as error:
        raise unreadable(folder, error) from error
    steps = [name for name in names if STEP.fullmatch(name)]
    return [folder / name for name in sorted(steps, key=lambda name: int(name[5:]), reverse=True)]


def run_steps(run: Path) -> list[int]:
    """The steps of a run that have a checkpoint, in order."""
    return [int(path.name[5:]) for path in reversed(step_folders(checkpoints_of(run)))]


def newest_sound(folder: Path, read: Callable[[Path], T], *, skipped: Skipped) -> T | None:
    """What `read`, which verifies, returns for the newest sound checkpoint; None if there is none."""
    damaged = []
    for path in step_folders(folder):
        try:
            return read(path)
        except HeadwayError as error:
            if path not in step_folders(folder):  # the trainer has deleted it meanwhile, so there is a newer one
                return newest_sound(folder, read, skipped=skipped)
            damaged.append(error.message)
            skipped(path, error.message.removeprefix(f"{show(path)}: "))
    if not damaged:
        return None
    what = "\n  ".join([f"{show(folder)}: every checkpoint is damaged:", *damaged])
    raise DamagedError("X001", what, "restore a checkpoint from a backup, or start a new run")


def newest_state(folder: Path) -> dict[str, Any] | None:
    """The state in the newest readable manifest, without its tensors; None if there is none."""
    for path in step_folders(folder):
        with suppress(OSError, ValueError, TypeError, LookupError, AttributeError):
            state: dict[str, Any] = _read_manifest(path / MANIFEST)["state"]
            return state
    return None


def read_tensors(path: Path, stem: str) -> dict[str, Tensor]:
    """The tensors of one file of a checkpoint, in memory: the file may be deleted afterwards."""
    weights = open_file(path / f"{stem}{SUFFIX}")
    return {name: weights.read(name).clone() for name in weights.names}


def last_weights(newest: Path, count: int) -> list[dict[str, Tensor]]:
    """The weights of a checkpoint and of those before it, `count` in all or as many as there are.

    A damaged one is an error: without it the average would differ.
    """
    paths = [path for path in step_folders(newest.parent) if int(path.name[5:]) <= int(newest.name[5:])][:count]
    for path in paths:
        verify(path, ("model",))
    return [read_tensors(path, "model") for path in paths]


def verify(path: Path, stems: Collection[str] | None = None) -> dict[str, Any]:
    """Check that a checkpoint has exactly the files of its manifest, with their sizes and SHA-256; the manifest.

    With `stems`, only those files are hashed: the moments of an optimizer are twice the size of the weights.
    """
    try:
        manifest = _read_manifest(path / MANIFEST)
        if path.name != (name := f"step-{manifest['step']:08d}"):
            raise ValueError(f"its manifest belongs to {name}")
        names, there = {*manifest["files"], MANIFEST}, set(os.listdir(path))
        if wrong := sorted(names ^ there):
            raise ValueError(f"{wrong[0]!a} is {'missing' if wrong[0] in names else 'not in the manifest'}")
        for name, expected in manifest["files"].items():
            with (path / name).open("rb") as file:
                if (size := os.fstat(file.fileno()).st_size) != expected["size"]:
                    raise ValueError(f"{name} has {size:,} bytes, the manifest says {expected['size']:,}")
                if stems is not None and name.removesuffix(SUFFIX) not in stems:
                    continue
                if hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
                    raise ValueError(f"{name} does not have the SHA-256 of the manifest")
    except OSError as error:
        what = f"{Path(error.filename or path).name} cannot be read: {error.strerror or error}"
        raise DamagedError("X001", f"{show(path)}: {what}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # the last three: an invented manifest
        raise DamagedError("X001", f"{show(path)}: {error}") from None
    return manifest


def sealed(manifest: dict[str, Any]) -> bytes:
    """The manifest with its own SHA-256, which protects the state in it."""
    digest = hashlib.sha256(json.dumps(manifest, indent=1).encode()).hexdigest()
    return json.dumps({**manifest, "sha256": digest}, indent=1).encode() + b"\n"


def _read_manifest(path: Path) -> dict[str, Any]:
    raw = path.read_bytes() if path.stat().st_size <= JSON_LIMIT else b""
    manifest = parse_object(raw, JSON_VALUES)
    if (version := manifest.get("format")) != FORMAT_VERSION:
        raise ValueError(f"{MANIFEST} has format {version!a}, this headway reads format {FORMAT_VERSION}")
    manifest.pop("sha256", None)
    # Compare bytes, not values: "\u00E9" for "\u00e9" is a flipped bit too.
    if raw != sealed(manifest) or not isinstance(manifest["state"], dict):
        raise ValueError(f"{MANIFEST} does not match its own SHA-256")
    return manifest
