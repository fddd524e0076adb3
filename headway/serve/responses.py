"""Responses to chat and completion requests: engine events to JSON, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from fastapi.responses import Response

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError, HeadwayError
from headway.generate.engine.engine import Event, Request
from headway.generate.grammar.grammar import token_bytes
from headway.serve.chat.conversation import ToolUse
from headway.serve.chat.tool_calls import CallParser, Delta
from headway.serve.context import RequestContext, Send
from headway.serve.errors import ApiError
from headway.serve.schemas import ChatRequest, CompletionRequest

Json = dict[str, Any]
LOGPROB_FLOOR = -9999.0
"""Stands for the log-probability of an impossible token: JSON has no infinity."""


class TokenSpelling:
    """The text and the bytes of single tokens. A token may be a part of a character: then its text spells the bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def table(self) -> list[bytes] | None:
        """The bytes of every token. Building it takes a moment for a large vocabulary."""
        try:
            return token_bytes(self.tokenizer)
        except DataError:  # a tokenizer that joins words by rules
            return None

    def bytes(self, token: int) -> bytes:
        if self.table is not None and token < len(self.table):
            return self.table[token]
        return self.tokenizer.decode([token], skip_special=False).encode()

    def text(self, token: int) -> str:
        spelled = self.bytes(token)
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

    def entry(self, token: int, logprob: float | None) -> Json:
        return {"token": self.text(token), "logprob": _finite(logprob), "bytes": list(self.bytes(token))}


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else LOGPROB_FLOOR


class EventQueue:
    """Brings events from the engine's thread to the event loop, which creates it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._pending: list[tuple[int, Event]] = []
        self._lock = threading.Lock()
        self._wakeup = asyncio.Event()
        self._error: ApiError | None = None

    def put(self, index: int, event: Event) -> None:
        """Add an event, in the engine's thread. A busy loop is woken once for many events: waking is a system call."""
        with self._lock:
            self._pending.append((index, event))
            first = len(self._pending) == 1
        if first:
            with suppress(RuntimeError):  # the loop is closed: no client waits any more
                self.loop.call_soon_threadsafe(self._wakeup.set)

    def fail(self, error: ApiError) -> None:
        """Let `get` raise an error, in the event loop."""
        self._error = error
        self._wakeup.set()

    async def get(self) -> list[tuple[int, Event]]:
        """Wait for events, and return all there are, each with the index of its sequence."""
        await self._wakeup.wait()
        self._wakeup.clear()
        if self._error is not None:
            raise self._error
        with self._lock:
            pending, self._pending = self._pending, []
        return pending


@dataclass(eq=False)
class Choice:
    """One generated sequence of a response."""

    index: int
    calls: CallParser | None = None
    """Finds tool calls in the text; None: it is all content."""
    tool_calls: list[Json] = field(default_factory=list)
    prompt: str = ""
    """The prompt's text, where the request asks to echo it."""
    parts: list[str] = field(default_factory=list)
    tokens: list[Event] = field(default_factory=list)
    """Events whose log-probabilities are not sent yet."""
    finish: str | None = None
    count: int = 0
    """Generated tokens."""
    offset: int = 0
    """Characters of the tokens whose log-probabilities were sent."""
    last_token: float | None = None
    """When the last token came."""


class GenerationResponse:
    """The response to one request. Create it in the event loop; `submit` may take a while and belongs into a thread."""

    def __init__(
        self,
        context: RequestContext,
        body: ChatRequest | CompletionRequest,
        requests: Sequence[Request],
        spelling: TokenSpelling,
        tools: ToolUse | None = None,
    ) -> None:
        self.context, self.body, self.requests, self.spelling = context, body, requests, spelling
        self.served, self.metrics = context.server.model, context.server.metrics
        self.chat = isinstance(body, ChatRequest)
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created, self.began = int(time.time()), time.monotonic()
        parsers = [None if tools is None else tools.parser(guided=tools.forced) for _ in requests]
        self.choices = [Choice(i, parser) for i, parser in enumerate(parsers)]
        self.prompt_tokens = sum(len(request.prompt) for request in requests[:: body.count])
        """Tokens of the prompts, each counted once, however many completions it has."""
        self.prompt_events: dict[tuple[int, ...], list[Event]] = {}
        """The log-probabilities of prompts, where the request asks for them."""
        self.queue = EventQueue()
        self.submitted: list[Request] = []
        self.cancelled = False
        self._lock = threading.Lock()
        """Guards `submitted` and `cancelled`: a client may disconnect while its requests are being submitted."""

    def submit(self) -> None:
        """Submit all requests to the engine, or none."""
        assert self.served.engine is not None
        if isinstance(self.body, CompletionRequest) and self.body.echo:
            for choice, request in zip(self.choices, self.requests, strict=True):
                choice.prompt = self.spelling.tokenizer.decode(request.prompt)
                choice.tokens = [*self.prompt_events.get(request.prompt, ())]
        if self.body.alternatives is not None:
            self.spelling.table  # noqa: B018 - built here, in a thread, and not in the event loop
        try:
            for index, request in enumerate(self.requests):
                submitted = self.served.engine.submit(request, partial(self.queue.put, index))
                with self._lock:
                    self.submitted.append(submitted)
                    cancelled = self.cancelled
                if cancelled:
                    submitted.cancel()
                    return
        except BaseException:
            self.cancel()
            raise
        self.metrics.prompt_tokens.inc(self.prompt_tokens)
        self.context.log_fields["prompt_tokens"] = self.prompt_tokens

    def fail(self, error: ApiError) -> None:
        self.queue.fail(error)
        self.cancel()

    def cancel(self) -> None:
        with self._lock:
            first, self.cancelled = not self.cancelled, True
            submitted = list(self.submitted)
        if first:
            self.metrics.cancelled.inc(sum(choice.finish is None for choice in self.choices))
        for request in submitted:
            request.cancel()

    async def events(self) -> AsyncIterator[list[tuple[Choice, Event]]]:
        """Yield the events that have come, until all sequences have ended. Raises the error of a sequence."""
        open_choices = len(self.choices)
        while open_choices:
            found: list[tuple[Choice, Event]] = []
            for index, event in await self.queue.get():
                if event.finish in ("error", "cancelled"):
                    yield found  # events before the error count
                    raise self._error(index, event)
                open_choices -= event.finish is not None
                found.append((self.choices[index], event))
            yield found

    def _error(self, index: int, event: Event) -> Exception:
        """Return a `HeadwayError` unchanged: the client may be at fault, with a pattern that cannot match, say."""
        error = self.submitted[index].error
        if isinstance(error, HeadwayError):
            return error
        reason = RuntimeError(f"the engine ended sequence {index}: {event.finish}")
        reason.__cause__ = error
        return reason

    def _take(self, choice: Choice, event: Event) -> None:
        """Count an event, and keep its log-probabilities for the next chunk where the request asks for them."""
        choice.finish = event.finish
        if event.token is None:
            return
        now = time.monotonic()
        choice.count += 1
        self.metrics.new_tokens.inc()
        if choice.last_token is None:
            self.metrics.first_token.observe(now - self.began)
        else:
            self.metrics.next_token.observe(now - choice.last_token)
        choice.last_token = now
        assert self.served.requests is not None
        ended = event.finish == "stop" and event.token in self.served.requests.eos_ids
        if self.body.alternatives is not None and not ended:
            choice.tokens.append(event)

    def take(self, choice: Choice, event: Event) -> list[Delta]:
        """Count an event, and return what it adds to the answer. A complete answer with calls ends because of them."""
        self._take(choice, event)
        if choice.calls is None:
            return [Delta(event.text)] if event.text else []
        deltas = choice.calls.push(event.text) + (choice.calls.close() if event.finish else [])
        if choice.finish == "stop" and choice.calls.count:
            choice.finish = "tool_calls"
        return deltas

    async def collect(self) -> Json:
        """Wait for all sequences, and return the whole response."""
        async for events in self.events():
            for choice, event in events:
                for delta in self.take(choice, event):
                    choice.parts.append(delta.content)
                    add_call(choice.tool_calls, delta)
        self.context.log_fields["new_tokens"] = self._usage()["completion_tokens"]
        choices: list[Json] = []
        for choice in self.choices:
            text = choice.prompt + "".join(choice.parts)
            content = {"message": _message(text, choice.tool_calls)} if self.chat else {"text": text}
            choices.append(self._choice(choice, content))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self._usage()}

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events. An error is an event too; [DONE] does not follow it."""
        try:
            for choice in self.choices:
                if self.chat or choice.prompt:
                    yield sse(self._chunk(choice, Delta(choice.prompt), role=True))
            async for events in self.events():
                yield b"".join(self._event_bytes(choice, event) for choice, event in events)
            if self.body.include_usage:
                yield sse(self._chunk_of([]) | {"usage": self._usage()})
            yield b"data: [DONE]\n\n"
        except Exception as error:
            yield sse(self.context.record_error(error).body())
        finally:
            self.context.log_fields["new_tokens"] = self._usage()["completion_tokens"]

    def _event_bytes(self, choice: Choice, event: Event) -> bytes:
        deltas = self.take(choice, event)
        if not deltas and (choice.tokens or choice.finish is not None):
            deltas = [Delta()]
        finish, choice.finish = choice.finish, None  # which only the last chunk tells
        chunks = list[bytes]()
        for i, delta in enumerate(deltas):
            choice.finish = finish if i == len(deltas) - 1 else None
            chunks.append(sse(self._chunk(choice, delta)))
        choice.finish = finish
        return b"".join(chunks)

    def _usage(self) -> Json:
        old, new = self.prompt_tokens, sum(choice.count for choice in self.choices)
        return {"prompt_tokens": old, "completion_tokens": new, "total_tokens": old + new}

    def _chunk(self, choice: Choice, delta: Delta, *, role: bool = False) -> Json:
        if not self.chat:
            return self._chunk_of([self._choice(choice, {"text": delta.content})])
        shown: Json = ({"role": "assistant"} if role else {}) | (
            {"content": delta.content} if delta.content or role else {}
        )
        if delta.name:
            function = {"name": delta.name, "arguments": ""}
            shown["tool_calls"] = [{"index": delta.call, "id": delta.id, "type": "function", "function": function}]
        elif delta.arguments:
            shown["tool_calls"] = [{"index": delta.call, "function": {"arguments": delta.arguments}}]
        return self._chunk_of([self._choice(choice, {"delta": shown})])

    def _chunk_of(self, choices: list[Json]) -> Json:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices} | ({"usage": None} if self.body.include_usage else {})

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.served.id}

    def _choice(self, choice: Choice, content: Json) -> Json:
        events, choice.tokens, logprobs = choice.tokens, [], None
        if self.body.alternatives is not None:
            logprobs = self._chat_logprobs(events) if self.chat else self._text_logprobs(choice, events)
        return {"index": choice.index, **content, "logprobs": logprobs, "finish_reason": choice.finish}

    def _chat_logprobs(self, events: list[Event]) -> Json:
        entry, content = self.spelling.entry, list[Json]()
        for event in events:
            assert event.token is not None
            others = [entry(token, value) for token, value in event.alternatives]
            content.append(entry(event.token, event.log_probability) | {"top_logprobs": others})
        return {"content": content}

    def _text_logprobs(self, choice: Choice, events: list[Event]) -> Json:
        """The older format. Its alternatives always include the token itself; a prompt's first token has none."""
        offsets, tops = [], []
        pairs = [(event.token, event.log_probability) for event in events if event.token is not None]
        texts = [self.spelling.text(token) for token, _ in pairs]
        for text, pair, event in zip(texts, pairs, events, strict=True):
            offsets.append(choice.offset)
            choice.offset += len(text)
            known = (*event.alternatives, pair) if pair[1] is not None else ()
            tops.append({self.spelling.text(token): _finite(value) for token, value in known} or None)
        return {
            "tokens": texts,
            "token_logprobs": [None if value is None else _finite(value) for _, value in pairs],
            "top_logprobs": tops if self.body.alternatives else None,
            "text_offset": offsets,
        }


def _message(text: str, calls: list[Json]) -> Json:
    message: Json = {"role": "assistant", "content": text or None if calls else text}
    return message | ({"tool_calls": calls} if calls else {})


def add_call(calls: list[Json], delta: Delta) -> None:
    """Add what a delta says of a call to the calls so far."""
    if delta.name:
        calls.append({"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}})
    elif delta.arguments:
        calls[delta.call]["function"]["arguments"] += delta.arguments


def sse(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


class EventStream(Response):
    """Sends server-sent events as they come. Unlike Starlette's own class, it leaves disconnects to the middleware."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.parts = parts

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self.parts) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
