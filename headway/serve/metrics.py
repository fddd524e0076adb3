"""The request log and the Prometheus metrics at /metrics.

The log never contains headers or bodies. Metrics have the meaning of vLLM's metrics of similar names.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headway.jsonfile import show

Log = Callable[[Mapping[str, Any]], None]
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def log_errors(entry: Mapping[str, Any]) -> None:
    """Log only requests that failed because of the server."""
    if "reason" in entry:
        log_lines(entry)


def log_lines(entry: Mapping[str, Any]) -> None:
    """Log `12:00:01 POST /v1/completions 200 0.123s id=… new_tokens=16`, and the traceback of a server error below."""
    known = ("method", "path", "status", "seconds", "reason")
    rest = " ".join(f"{name}={value}" for name, value in entry.items() if name not in known)
    path = show(str(entry["path"]))  # escaped: the client chose it
    line = (
        f"{time.strftime('%H:%M:%S')} {show(entry['method'])} {path} {entry['status']} {entry['seconds']:.3f}s {rest}"
    )
    if reason := entry.get("reason"):
        line += f"\n{reason.rstrip()}"
    print(line, file=sys.stderr, flush=True)


def log_json(entry: Mapping[str, Any]) -> None:
    print(json.dumps({"time": round(time.time(), 3), **entry}), file=sys.stderr, flush=True)


LOGS: dict[str, Log] = {"lines": log_lines, "json": log_json, "quiet": log_errors}


class Metrics:
    """The metrics of one server. Nothing is global, so a process can run several servers."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("headway_requests", "finished requests", ("route", "status"), registry=own)
        self.prompt_tokens = Counter("headway_prompt_tokens", "prompt tokens", registry=own)
        self.new_tokens = Counter("headway_generation_tokens", "generated tokens", registry=own)
        self.cancelled = Counter("headway_cancelled", "sequences that were cancelled", registry=own)
        self.first_token = Histogram(
            "headway_time_to_first_token_seconds", "from the request to its first token", buckets=SECONDS, registry=own
        )
        self.next_token = Histogram(
            "headway_inter_token_latency_seconds", "between two tokens of a sequence", buckets=SECONDS, registry=own
        )

    def add_gauges(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Add a gauge per name, from its description and a function that returns the current value."""
        for name, (what, value) in gauges.items():
            Gauge(f"headway_{name}", what, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)
