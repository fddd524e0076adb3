"""What a server tells those who run it: a line per request, and the numbers that Prometheus reads at /metrics.

Neither headers nor bodies are ever in a log. Meanings of the numbers are those of vLLM's of like names.
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


def log_errors(facts: Mapping[str, Any]) -> None:
    """Only what went wrong on our side."""
    if "reason" in facts:
        log_lines(facts)


def log_lines(facts: Mapping[str, Any]) -> None:
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


def log_json(facts: Mapping[str, Any]) -> None:
    print(json.dumps({"time": round(time.time(), 3), **facts}), file=sys.stderr, flush=True)


LOGS: dict[str, Log] = {"lines": log_lines, "json": log_json, "quiet": log_errors}


class Metrics:
    """Of one server; nothing is global, so several can run in one process."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        self.requests = Counter("headway_requests", "requests answered", ("route", "status"), registry=own)
        self.prompt_tokens = Counter("headway_prompt_tokens", "tokens of prompts", registry=own)
        self.new_tokens = Counter("headway_generation_tokens", "tokens written", registry=own)
        self.cancelled = Counter("headway_cancelled", "texts that nobody waited for to the end", registry=own)
        self.first_token = Histogram(
            "headway_time_to_first_token_seconds", "from the request to its first token", buckets=SECONDS, registry=own
        )
        self.next_token = Histogram(
            "headway_inter_token_latency_seconds", "between two tokens of a text", buckets=SECONDS, registry=own
        )

    def add_gauges(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Name → meaning and a function that has the value now."""
        for name, (what, value) in gauges.items():
            Gauge(f"headway_{name}", what, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)
