"""The served model, the context of the server around it, and the context of each HTTP request."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from headway.config.model import max_positions
from headway.config.networks.baseline import BaselineConfig
from headway.config.networks.fusion import FusionConfig
from headway.config.networks.ngram import NGramConfig
from headway.data.prompts import PromptEncoder
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError, MemoryOrDiskError
from headway.generate.accel.dispatch import accelerates
from headway.generate.engine.engine import CAPACITY, Engine
from headway.generate.protocol import device_of
from headway.hub.generation_config import read_generation
from headway.model.model import Model
from headway.serve.auth import Keys
from headway.serve.errors import ApiError, overloaded, to_api_error
from headway.serve.limits import Limits
from headway.serve.metrics import Log, Metrics
from headway.serve.predict import Tasks
from headway.serve.requests import Grammars, RequestBuilder
from headway.tasks.audio.task import hears
from headway.tasks.image import reads_images
from headway.tasks.predictor import Loaded

T = TypeVar("T")
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

DEFAULT_SLOTS = 8
MAX_SLOTS = 64
"""On a GPU with kernels, a step for 64 sequences takes hardly longer than a step for one."""
KV_CACHE_SHARE = 0.25
"""Share of the free GPU memory that the KV cache may take."""
RESPONSE_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class ServedModel:
    """The model that is served, with its engine. `start` and `close` start and end the engine's thread."""

    def __init__(self, bundle: Loaded, limits: Limits, name: str = "") -> None:
        config, self.model = bundle.model.config, bundle.model
        if reads_images(config) or hears(config) or isinstance(config, FusionConfig):
            limits = replace(limits, body_bytes=limits.image_bytes)
        self.limits = limits
        self.id, self.created = name or _name(bundle), int(time.time())
        self.engine: Engine | None = None
        self.requests: RequestBuilder | None = None
        self.tokenizer: Tokenizer | None = None
        """Of a model that generates."""
        self.grammars: Grammars | None = None
        if isinstance(config, BaselineConfig | NGramConfig) and config.kind == "decoder":
            why = f"{self.id} is a model of kind {config.network}; the server generates only with transformers"
            raise DataError("D001", why, "use headway run")
        if config.kind == "decoder" and config.lm is not None:
            self._make_engine(bundle.require_tokenizer(), bundle.folder)
        self.tasks = Tasks(bundle, limits, _context_length(self.model))
        if not self.capabilities():
            raise DataError("D001", f"{self.id} has nothing to serve: it neither reads nor generates text")

    def _make_engine(self, tokenizer: Tokenizer, folder: Path | None) -> None:
        limits, longest = self.limits, self.model.config.max_length
        if longest is not None and limits.context > longest:
            message = f"context = {limits.context} is more than the model's context length of {longest} tokens"
            raise ConfigError("C003", message)
        slots, capacity = choose_slots(limits, self.model), limits.context or None
        try:
            self.engine = Engine(self.model, tokenizer, slots=slots, capacity=capacity, queue=limits.queue)
        except MemoryOrDiskError as error:
            raise MemoryOrDiskError(error.code, error.message, "set fewer slots, or a shorter context") from error
        self.tokenizer = tokenizer
        encoder = PromptEncoder(tokenizer, self.model.config.special)
        vocab, settings = self.model.lm.vocab, read_generation(folder)
        self.requests = RequestBuilder(
            encoder, limits, vocab=vocab, context_length=self.engine.capacity, settings=settings
        )
        self.grammars = Grammars(tokenizer, limits, vocab=vocab, eos_ids=self.requests.eos_ids)

    def capabilities(self) -> list[str]:
        """List what the model does: chat, complete, and the tasks of /v1/run."""
        chats = self.requests is not None and self.requests.template is not None
        return ["chat"] * chats + ["complete"] * (self.requests is not None) + self.tasks.names

    def card(self) -> dict[str, Any]:
        """Describe the model as GET /v1/models/ID does."""
        length = self.requests.context_length if self.requests is not None else _context_length(self.model)
        card = {"id": self.id, "object": "model", "created": self.created, "owned_by": "headway"}
        return {**card, "can": self.capabilities(), "context": length}

    def check_name(self, name: str) -> None:
        if name != self.id:
            message = f'there is no model {name[:100]!r}; this server has "{self.id}"'
            raise ApiError(404, message, "model_not_found", "model")

    def failure(self) -> str:
        """Say why the model answers no requests now. Empty: it does."""
        return self.stuck() or ("" if self.engine is None else self.engine.trouble)

    def stuck(self) -> str:
        """Say whether a step hangs. No request can be answered before it ends, if it ever does."""
        engine = 0.0 if self.engine is None else self.engine.step_seconds()
        if max(engine, self.tasks.step_seconds()) > self.limits.step_seconds:
            return f"a step of the model takes longer than {self.limits.step_seconds:g} s"
        return ""

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """Return the gauges for /metrics: name → description, and a function that returns the value."""
        if (engine := self.engine) is None:
            return {}
        return {
            "requests_running": ("sequences in a slot", lambda: engine.stats().running),
            "requests_waiting": ("sequences that wait for a slot", lambda: engine.stats().waiting),
            "cache_usage_ratio": ("share of the slots in use", lambda: engine.stats().used / engine.stats().slots),
            "engine_faults": ("steps of the model that failed", lambda: engine.faults),
            "prefix_cache_tokens": ("prompt tokens found in the KV cache", lambda: engine.stats().prefix_tokens),
        }

    def start(self) -> None:
        if self.engine is not None:
            self.engine.start()

    def close(self) -> None:
        """Stop all threads of the model, and wait for them."""
        pools = [self.tasks.pool, *([self.grammars.pool] if self.grammars is not None else [])]
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        if self.engine is not None:
            self.engine.close()
        for pool in pools:
            pool.shutdown()


def choose_slots(limits: Limits, model: Model, free: Callable[[torch.device], int] | None = None) -> int:
    """Return `limits.slots`, or the batch size that suits the model and its device. `free` returns free GPU memory."""
    if limits.slots is not None:
        return limits.slots
    device = device_of(model)
    if device.type != "cuda" or not accelerates(model, MAX_SLOTS):
        return DEFAULT_SLOTS
    memory = torch.cuda.mem_get_info(device)[0] if free is None else free(device)
    slots = MAX_SLOTS
    while slots > DEFAULT_SLOTS and slots * kv_cache_bytes(model, limits.context) > KV_CACHE_SHARE * memory:
        slots //= 2
    return slots


def kv_cache_bytes(model: Model, context: int) -> int:
    """Return the size of one slot of the KV cache, for `context` tokens; 0: the model's context length."""
    stack = model.config.decoder
    assert stack is not None
    tokens = context or model.config.max_length or CAPACITY
    return tokens * stack.n_layers * 2 * stack.kv_heads * stack.head_width * next(model.parameters()).element_size()


def _name(bundle: Loaded) -> str:
    """Name the model: a hub id or a preset unchanged, a folder without the path to it, which clients need not know."""
    place, at, step = bundle.name.partition("@")
    if bundle.folder is None or not Path(place).exists():
        return bundle.name
    return f"{bundle.folder.resolve().name}{at}{step}"


def _context_length(model: Model) -> int | None:
    front = model.config.source or model.config.target
    return None if front is None else max_positions(front)  # a model of series has none


@dataclass(eq=False)
class ServerContext:
    """What the parts of one server share. Only the event loop changes it."""

    model: ServedModel
    keys: Keys
    log: Log
    hosts: frozenset[str] = frozenset()
    """Host names that requests to a loopback address may use. Empty: any name."""
    metrics: Metrics = field(default_factory=Metrics)
    stopping: bool = False
    open: int = 0
    """Open requests, without those to /health and /metrics."""
    bodies: int = 0
    """Bytes of the bodies of all open requests."""
    running: set[RequestContext] = field(default_factory=set)
    """All open requests."""
    pool: ThreadPoolExecutor = field(init=False)
    """Threads for work that takes long, so that the event loop never waits for it."""

    def __post_init__(self) -> None:
        self.limits = self.model.limits
        self.pool = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="headway-request")
        own = {"requests_open": ("open requests", lambda: self.open)}
        self.metrics.add_gauges(self.model.gauges() | own)

    async def run_in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)


class Cancellable(Protocol):
    """Work that a client waits for."""

    def fail(self, error: ApiError) -> None:
        """End the work, and send the error to the client."""

    def cancel(self) -> None:
        """End the work, for which no client waits any more. Allowed after its end, too."""


@dataclass(eq=False)
class RequestContext:
    """One HTTP request: its id, its work, and how much of its response has been sent. Each request has its own task."""

    id: str
    server: ServerContext
    asgi_send: Send
    work: Cancellable | None = None
    log_fields: dict[str, Any] = field(default_factory=dict)
    """What the log shows besides method, path and status."""
    body_bytes: int = 0
    """Bytes of the body that the server holds."""
    error: ApiError | None = None
    """Why the server ended the request before it had any work."""
    status: int | None = None
    """Status of the response, once its headers are sent."""
    complete: bool = False
    """Whether the whole response is sent."""

    def __post_init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.server.running.add(self)

    async def send(self, message: Message) -> None:
        """Send a part of the response. Every response carries the request's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = (b"x-request-id", self.id.encode())
            message["headers"] = [*message.get("headers", ()), own, *RESPONSE_HEADERS]
        await self.asgi_send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)

    def record_error(self, error: Exception) -> ApiError:
        """Return the error for the client. The log gets the traceback where the client does not see the message."""
        api_error = to_api_error(error, self.id)
        self.log_fields["error"] = api_error.code
        if api_error.status >= 500 and api_error is not error:
            self.log_fields["reason"] = "".join(traceback.format_exception(error))
        return api_error

    def reserve_body(self, size: int) -> None:
        """Count bytes of the body against the limit for all open requests."""
        self.body_bytes += size
        self.server.bodies += size
        if self.server.bodies > self.server.limits.bodies_bytes:
            raise overloaded(f"the bodies of all requests have more than {self.server.limits.bodies_bytes:,} bytes")

    def release_body(self) -> None:
        self.server.bodies -= self.body_bytes
        self.body_bytes = 0

    def fail(self, error: ApiError) -> None:
        """End the request wherever it is, and send the error to the client."""
        if self.work is not None:
            self.work.fail(error)
        elif self.error is None:
            self.error = error
            self.task.cancel()

    def end(self) -> None:
        self.server.running.discard(self)
        self.release_body()
        if self.work is not None:
            self.work.cancel()
