"""Texts as they are written to what a client reads: whole, or as a stream of server-sent events."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.engine.engine import Event
from headway.generate.grammar.grammar import token_bytes
from headway.serve.context import RequestContext
from headway.serve.generation import Generation
from headway.serve.requests import PreparedRequest

Json = dict[str, Any]
LOGPROB_FLOOR = -9999.0
"""Stands for the logarithm of nothing, for which JSON has no word."""


class TokenSpelling:
    """What single tokens add to a text. A token may be part of a character only: then its bytes are spelled out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def table(self) -> list[bytes] | None:
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


@dataclass(eq=False)
class Choice:
    """One of the texts that are written for a request."""

    index: int
    prompt: str
    parts: list[str] = field(default_factory=list)
    tokens: list[Event] = field(default_factory=list)
    """Those with a token, where probabilities are asked for."""
    finish: str | None = None
    count: int = 0
    offset: int = 0
    """Characters of the tokens shown so far."""


class ResponseBuilder:
    """The two shapes of an answer: a message of a chat, or the continuation of a text."""

    def __init__(
        self,
        kind: Literal["chat", "text"],
        model: str,
        prepared: PreparedRequest,
        spelling: TokenSpelling,
        ends: Sequence[int],
    ) -> None:
        """`ends` are the tokens that end a text and are no part of it."""
        self.chat, self.model, self.prepared, self.spelling, self.ends = kind == "chat", model, prepared, spelling, ends
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())
        self.choices = [Choice(i, prompt) for i, prompt in enumerate(prepared.prompts)]

    def take(self, index: int, event: Event) -> Choice:
        choice = self.choices[index]
        choice.count += event.token is not None
        choice.finish = event.finish
        last = event.finish == "stop" and event.token in self.ends
        if self.prepared.top is not None and event.token is not None and not last:
            choice.tokens.append(event)
        return choice

    def usage(self) -> Json:
        new = sum(choice.count for choice in self.choices)
        old = self.prepared.prompt_tokens
        return {"prompt_tokens": old, "completion_tokens": new, "total_tokens": old + new}

    def whole(self) -> Json:
        choices: list[Json] = []
        for choice in self.choices:
            text = choice.prompt + "".join(choice.parts)
            shown = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
            choices.append(self._choice(choice, shown))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self.usage()}

    def chunk(self, choice: Choice, text: str, *, role: bool = False) -> Json:
        delta = ({"role": "assistant"} if role else {}) | ({"content": text} if text or role else {})
        shown = {"delta": delta} if self.chat else {"text": text}
        return self._chunk([self._choice(choice, shown)])

    def last(self) -> Json:
        return self._chunk([]) | {"usage": self.usage()}

    def _chunk(self, choices: list[Json]) -> Json:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices} | ({"usage": None} if self.prepared.usage else {})

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _choice(self, choice: Choice, shown: Json) -> Json:
        found, tokens = None, choice.tokens
        choice.tokens = []
        if self.prepared.top is not None:
            found = {"content": [self._entry(event) for event in tokens]} if self.chat else self._table(choice, tokens)
        return {"index": choice.index, **shown, "logprobs": found, "finish_reason": choice.finish}

    def _entry(self, event: Event) -> Json:
        assert event.token is not None
        others = [self._alternative(token, value) for token, value in event.alternatives]
        return self._alternative(event.token, event.log_probability) | {"top_logprobs": others}

    def _alternative(self, token: int, value: float | None) -> Json:
        spelled = self.spelling
        return {"token": spelled.text(token), "logprob": _finite(value), "bytes": list(spelled.bytes(token))}

    def _table(self, choice: Choice, events: list[Event]) -> Json:
        """The older form; beside the alternatives it always has the token itself."""
        offsets, tops = [], []
        pairs = [(event.token, event.log_probability) for event in events if event.token is not None]
        texts = [self.spelling.text(token) for token, _ in pairs]
        for text, pair, event in zip(texts, pairs, events, strict=True):
            offsets.append(choice.offset)
            choice.offset += len(text)
            tops.append({self.spelling.text(token): _finite(value) for token, value in (*event.alternatives, pair)})
        return {
            "tokens": texts,
            "token_logprobs": [_finite(value) for _, value in pairs],
            "top_logprobs": tops if self.prepared.top else None,
            "text_offset": offsets,
        }


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else LOGPROB_FLOOR


async def collect(form: ResponseBuilder, generation: Generation, context: RequestContext) -> Json:
    async for events in generation.events():
        for index, event in events:
            form.take(index, event).parts.append(event.text)
    context.log_fields["new_tokens"] = form.usage()["completion_tokens"]
    return form.whole()


async def stream(form: ResponseBuilder, generation: Generation, context: RequestContext) -> AsyncGenerator[bytes, None]:
    """Server-sent events. An error comes as an event too, and then no [DONE]: that would be to say all is there."""
    try:
        for choice in form.choices:
            if form.chat or choice.prompt:
                yield _event(form.chunk(choice, choice.prompt, role=True))
        async for events in generation.events():
            yield b"".join(_chunk_bytes(form, index, event) for index, event in events)
        if form.prepared.usage:
            yield _event(form.last())
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _event(context.record_error(error).body())
    finally:
        context.log_fields["new_tokens"] = form.usage()["completion_tokens"]


def _chunk_bytes(form: ResponseBuilder, index: int, event: Event) -> bytes:
    choice = form.take(index, event)
    return _event(form.chunk(choice, event.text)) if event.text or choice.tokens or choice.finish is not None else b""


def _event(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
