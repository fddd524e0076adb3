"""The log of a run: one JSON line an event, appended and flushed, never rewritten."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO


class Log:
    """log.jsonl of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 — held for the length of the run

    def write(self, kind: str, **facts: Any) -> None:
        line = {"event": kind, "time": round(time.time(), 3), **facts}
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """All events; a last line cut short by a crash is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            break
    return events
