"""The log of a run: one JSON line an event, appended and flushed, never rewritten."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from headway.hub.weights import writing


class Log:
    """log.jsonl of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path.parent, 0):
            torn = path.exists() and not path.read_bytes().endswith(b"\n")
            self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 — held for the length of the run
            if torn and path.stat().st_size:
                self._file.write("\n")  # what a crash cut short must not swallow the next line

    def write(self, kind: str, **facts: Any) -> None:
        line = {"event": kind, "time": round(time.time(), 3), **facts}
        with writing(self.path.parent, 0):
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """All events; a line cut short by a crash is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").split("\n"):  # samples may hold other ends of lines
        if not line:
            continue
        with suppress(ValueError):
            events.append(json.loads(line))
    return events
