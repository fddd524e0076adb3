"""All limits of the server; `headway serve --print-limits` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from headway.errors import ConfigError
from headway.jsonfile import JSON_DEPTH


def _limit(default: Any, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client may send, how long it may take, and how much the server does at a time."""

    slots: int | None = _limit(None, "batch size of generation; auto: 8, or up to 64 on a GPU with kernels")
    queue: int = _limit(64, "sequences that wait for a slot; more get 429")
    context: int = _limit(0, "tokens of a prompt and its completion together; 0: the model's context length")
    requests: int = _limit(256, "open requests; more get 429")
    connections: int = _limit(2048, "open connections; more get 503")
    threads: int = _limit(4, "threads that parse, render and tokenize requests")
    headers: int = _limit(100, "header lines of a request; more get 431")
    header_bytes: int = _limit(16_384, "bytes of all headers of a request; more get 431")
    body_bytes: int = _limit(2_000_000, "bytes of a body; more get 413")
    bodies_bytes: int = _limit(64_000_000, "bytes of the bodies of all open requests; more get 429")
    json_values: int = _limit(200_000, "values in a JSON body")
    messages: int = _limit(1000, "messages of a conversation")
    n: int = _limit(8, "completions of one prompt")
    texts: int = _limit(16, "sequences of one request: prompts times n")
    inputs: int = _limit(256, "inputs of one request to /v1/embeddings or /v1/run")
    stop: int = _limit(16, "stop strings of a request")
    stop_characters: int = _limit(256, "characters of a stop string")
    schema_bytes: int = _limit(32_768, "bytes of the JSON schema in response_format")
    grammars: int = _limit(16, "requests that wait for their JSON schema to compile; more get 429")
    tools: int = _limit(128, "tools of a request")
    tool_bytes: int = _limit(131_072, "bytes of all tools of a request: names, descriptions, JSON schemas")
    image_pixels: int = _limit(25_000_000, "pixels of an image; it is refused before it is decoded")
    image_bytes: int = _limit(
        20_000_000, "bytes of a body for a model that reads images or sounds, instead of body_bytes"
    )
    sound_seconds: float = _limit(1200.0, "seconds of a sound to transcribe")
    logit_bias: int = _limit(1024, "tokens in the logit_bias of a request")
    responses: int = _limit(
        256, "responses that the server remembers for previous_response_id; the oldest are forgotten"
    )
    responses_bytes: int = _limit(16_000_000, "bytes of these responses with their conversations")
    top_logprobs: int = _limit(20, "alternatives reported for each token")
    header_seconds: float = _limit(
        10.0, "seconds for the headers of a request to arrive; then the connection is closed"
    )
    body_seconds: float = _limit(30.0, "for the body of a request to arrive; then 408")
    stall_seconds: float = _limit(
        30.0, "seconds in which a client reads none of its response; then the connection is closed"
    )
    eof_seconds: float = _limit(60.0, "for a response to begin after its client has shut down its sending side")
    step_seconds: float = _limit(120.0, "for one step of the model; then /health reports a failure until it ends")
    idle_seconds: float = _limit(5.0, "that an idle connection stays open")
    drain_seconds: float = _limit(20.0, "for open requests to finish after a signal to stop")

    def __post_init__(self) -> None:
        for each in fields(self):
            least, value = (0 if each.name == "context" else 1e-3), getattr(self, each.name)
            if value is not None and not least <= value <= 1e12:  # False for NaN too
                raise ConfigError("C003", f"{each.name} = {value} is outside {least:g} … 1e12")

    def table(self) -> list[tuple[str, float | None, str]]:
        """Return (name, value, meaning) of every limit. A value of None depends on the model."""
        rows = [(each.name, getattr(self, each.name), each.metadata["what"]) for each in fields(self)]
        return [*rows, ("json_depth", JSON_DEPTH, "nesting levels of a JSON body (fixed)")]
