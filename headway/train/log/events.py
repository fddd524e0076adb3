"""The log of a run, log.jsonl: one JSON line per event, appended and flushed, never rewritten."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO

from headway.hub.weights import writing


class Log:
    """Appends events to a run's log.jsonl."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path.parent, 0):
            torn = path.exists() and not path.read_bytes().endswith(b"\n")
            self._file: TextIO = open(path, "a", encoding="utf-8")  # noqa: SIM115 — open as long as the run
            if torn and path.stat().st_size:
                self._file.write("\n")  # ends a line that a crash cut short, so that the next one can be read

    def write(self, kind: str, **facts: Any) -> None:
        line = {"event": kind, "time": round(time.time(), 3), **facts}
        with writing(self.path.parent, 0):
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()
