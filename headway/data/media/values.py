"""Images and sounds in rows of tables and in requests: paths, bytes, base64; and the names of their classes."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.data.files.locate import file_format
from headway.errors import DataError, NotFoundError, nearest
from headway.jsonfile import show

DATA_URL = re.compile(r"data:(?:image|audio)/[\w.+-]+;base64,", re.IGNORECASE)


def parse_media(value: Any, folder: Path | None, noun: str) -> bytes | str:
    """An image or a sound of a row or request: a path, bytes, base64, or `datasets`' {"bytes", "path"}.

    Paths are relative to `folder`; without one they are refused, since a request must not read files of the server.
    """
    if isinstance(value, Mapping):
        value = value["bytes"] if value.get("bytes") is not None else value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            "D001", f"expected the {noun}: {'base64' if folder is None else 'a path'}, or the bytes of a file"
        )
    if DATA_URL.match(value) or folder is None:
        return _decoded(value, noun)
    path = Path(os.path.expanduser(value))
    path = path if path.is_absolute() else folder / path
    if path.is_dir():
        raise DataError("D001", f"{show(path)[-200:]} is a folder, not one {noun}", "--file reads a whole folder")
    if not path.is_file():
        names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        if path.name in names:
            raise NotFoundError("F001", f"{show(path)[-200:]} is a link to a file that does not exist")
        raise NotFoundError("F001", f"no such file: {show(path)[-200:]}{nearest(path.name, names)}")
    return str(path)


def _decoded(value: str, noun: str) -> bytes:
    try:
        return base64.b64decode(DATA_URL.sub("", value, count=1), validate=True)
    except (binascii.Error, ValueError):
        kind = "image/png" if noun == "image" else "audio/wav"
        what = f"{value[:40]!r} is no {noun} in base64"
        raise DataError("D001", what, f"send base64, or a data URL: data:{kind};base64,…") from None


def class_names(path: Path, label: str) -> dict[int, str]:
    """Names of labels in a parquet file that `datasets` has written, which holds their numbers."""
    if not label or file_format(path)[0] != "parquet":
        return {}
    import json

    from pyarrow import parquet

    try:
        found = json.loads((parquet.read_schema(path).metadata or {})[b"huggingface"])["info"]["features"][label]
        return {i: str(name) for i, name in enumerate(found["names"])}
    except (KeyError, TypeError, ValueError):
        return {}
