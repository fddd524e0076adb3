"""One line per request, for people or for programs. Neither headers nor bodies are ever in it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from headway.jsonfile import show
from headway.serve.state import Log


def quiet(facts: Mapping[str, Any]) -> None:
    """Only what went wrong on our side."""
    if "reason" in facts:
        lines(facts)


def lines(facts: Mapping[str, Any]) -> None:
    """`12:00:01 POST /v1/completions 200 0.123s id=… new_tokens=16`, and the reason of an error of ours below."""
    known = ("method", "path", "status", "seconds", "reason")
    rest = " ".join(f"{name}={value}" for name, value in facts.items() if name not in known)
    path = show(str(facts["path"]))  # it comes from the client
    line = (
        f"{time.strftime('%H:%M:%S')} {show(facts['method'])} {path} {facts['status']} {facts['seconds']:.3f}s {rest}"
    )
    if reason := facts.get("reason"):
        line += f"\n{reason.rstrip()}"
    print(line, file=sys.stderr, flush=True)


def json_lines(facts: Mapping[str, Any]) -> None:
    print(json.dumps({"time": round(time.time(), 3), **facts}), file=sys.stderr, flush=True)


KINDS: dict[str, Log] = {"lines": lines, "json": json_lines, "quiet": quiet}
