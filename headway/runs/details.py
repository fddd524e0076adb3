"""The evaluation that a finished run has left in run/evaluation.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.jsonfile import read_json

FILE = "evaluation.json"
LIMIT = 4_000_000
KNOWN = ("from", "to", "examples", "kind")
"""Keys of a row that are not metrics."""


def read_details(folder: Path) -> dict[str, Any] | None:
    """The evaluation that a finished run has left; None where there is none that can be read."""
    try:
        return read_json(folder / "run" / FILE, limit=LIMIT)
    except HeadwayError:
        return None
