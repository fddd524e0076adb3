"""From a name to a folder: a local path, or `org/name[@revision]` on the Hugging Face hub."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import cast

from headway.errors import MemoryOrDiskError, NetworkError, NotFoundError

HUB_ID = re.compile(r"(?:hf://)?(?P<id>[\w][\w.-]*/[\w][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
"""What a model needs: never pickles, never code."""


def resolve(what: str) -> Path:
    """The folder that a path or hub id stands for. A folder that exists wins; `hf://` always means the hub."""
    path = os.path.expanduser(what)
    if not what.startswith("hf://") and os.path.isdir(path):
        return Path(path)
    match = HUB_ID.fullmatch(what)
    if match is None or ".." in what or "--" in match["id"]:  # no hub id has either, and both have other meanings
        raise NotFoundError("F001", f"no such model: {what}", "give a folder, org/name[@revision], or a preset")
    return fetch(match["id"], match["revision"])


def fetch(hub_id: str, revision: str | None = None) -> Path:
    """A snapshot of a hub model, from the local cache where it is there; huggingface_hub's own variables apply."""
    from huggingface_hub import errors as hub
    from huggingface_hub import snapshot_download

    asked = f"{hub_id}@{revision}" if revision else hub_id
    # what the hub's own error derives from: that of its transport, for lost connections, and OSError
    lost = cast("tuple[type[Exception], ...]", hub.HfHubHTTPError.__bases__)
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=FILES))
    except hub.HFValidationError as error:
        raise NotFoundError("F001", f"{asked} is no hub id: {str(error).splitlines()[0]}") from None
    except hub.RevisionNotFoundError:
        raise NotFoundError("F001", f"{hub_id} has no revision {revision!r} on the hub") from None
    except hub.GatedRepoError:
        raise NotFoundError(
            "F001", f"{asked} asks you to accept its terms on the hub first", "then: hf auth login"
        ) from None
    except hub.RepositoryNotFoundError:
        raise NotFoundError("F001", f"{asked} is not on the hub, or is private", "then: hf auth login") from None
    except lost as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise MemoryOrDiskError("M002", f"{asked} cannot be kept: {error.strerror}: {error.filename}") from None
        reason = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0][:150]
        raise NetworkError(
            "N001",
            f"{asked} is neither in the local cache nor could it be fetched: {reason}",
            "connect once and repeat, or unset HF_HUB_OFFLINE if it is set",
        ) from None
