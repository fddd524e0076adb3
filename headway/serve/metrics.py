"""What Prometheus reads at /metrics. Meanings are those of vLLM's metrics of like names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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

    def watch(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Name → meaning and a function that has the value now."""
        for name, (what, value) in gauges.items():
            Gauge(f"headway_{name}", what, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)
