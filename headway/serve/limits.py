"""Every limit of the server in one place: `headway serve --print-limits` shows them, key=value words change them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from headway.errors import ConfigError
from headway.jsonfile import JSON_DEPTH


def _limit(default: Any, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client may send, how long it may take, and how much is done at one time."""

    slots: int | None = _limit(None, "texts written at one time; auto is 8, and up to 64 on a GPU with kernels")
    queue: int = _limit(64, "texts that wait for a slot; more get 429")
    context: int = _limit(0, "tokens of a prompt and its answer together; 0 is what the model can read")
    requests: int = _limit(256, "requests open at one time; more get 429")
    connections: int = _limit(2048, "connections open at one time; more get 503")
    threads: int = _limit(4, "threads that parse, render and tokenize requests")
    headers: int = _limit(100, "header lines of a request; more get 431")
    header_bytes: int = _limit(16_384, "bytes of them; more get 431")
    body_bytes: int = _limit(2_000_000, "bytes of a body; more get 413")
    bodies_bytes: int = _limit(64_000_000, "bytes of the bodies of all open requests; more get 429")
    json_values: int = _limit(200_000, "values in a body")
    messages: int = _limit(1000, "messages of a conversation")
    n: int = _limit(8, "answers to one prompt")
    texts: int = _limit(16, "texts that one request has written: prompts times n")
    inputs: int = _limit(256, "inputs of one request for embeddings or labels")
    stop: int = _limit(16, "stop strings")
    stop_characters: int = _limit(256, "characters of one")
    schema_bytes: int = _limit(32_768, "bytes of a JSON schema that an answer has to follow")
    grammars: int = _limit(16, "requests that wait for their JSON schema to be compiled; more get 429")
    top_logprobs: int = _limit(20, "alternatives shown beside a token")
    header_seconds: float = _limit(10.0, "for the headers of a request to arrive; then the connection is closed")
    body_seconds: float = _limit(30.0, "for its body; then 408")
    stall_seconds: float = _limit(30.0, "without a client taking anything of its answer; then it is cut off")
    eof_seconds: float = _limit(60.0, "for an answer to begin whose client has closed its own side; then it is cut off")
    step_seconds: float = _limit(120.0, "for one step of the model; then the server counts as failed until it ends")
    idle_seconds: float = _limit(5.0, "a connection is kept for a next request")
    drain_seconds: float = _limit(20.0, "for running answers to finish after a signal to stop")

    def __post_init__(self) -> None:
        for each in fields(self):
            least, value = (0 if each.name == "context" else 1e-3), getattr(self, each.name)
            if value is not None and not least <= value <= 1e12:  # a NaN is outside any range
                raise ConfigError("C003", f"{each.name} = {value} is outside {least:g} … 1e12")

    def table(self) -> list[tuple[str, float | None, str]]:
        """Name, value and meaning of each, and of the one that cannot be changed; None depends on the model."""
        rows = [(each.name, getattr(self, each.name), each.metadata["what"]) for each in fields(self)]
        return [*rows, ("json_depth", JSON_DEPTH, "levels of a body (fixed)")]
