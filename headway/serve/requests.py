"""Bodies of chat and completion requests to engine requests: prompt ids, sampling, a grammar."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

from headway.data.prompts import PromptEncoder, start_token
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.engine.engine import Request
from headway.generate.grammar.grammar import Grammar, Patterns
from headway.generate.sampling.sampler import Sampling
from headway.hub.generation_config import GenerationSettings
from headway.serve.errors import ApiError, overloaded, unsupported
from headway.serve.limits import Limits
from headway.serve.schemas import ChatRequest, CompletionRequest, Message, ResponseFormat

NO_SETTINGS = GenerationSettings()
CHARACTERS_PER_TOKEN = 8
"""More than the average token has in natural text."""
CHUNK = 4096
"""Characters that are tokenized at least."""


def far_too_long(tokenizer: Tokenizer, text: str, context_length: int) -> bool:
    """Whether a text has more than twice the tokens that fit, found without tokenizing all of it.

    Tokenizing a very long text could take seconds, and a lot of memory. A text that is only a little too long passes:
    its tokens are counted later.
    """
    chunk = max(CHUNK, CHARACTERS_PER_TOKEN * context_length)
    count = 0
    for start in range(0, len(text) if len(text) > chunk else 0, chunk):
        count += len(tokenizer.ids([text[start : start + chunk]])[0])
        if count > 2 * context_length + 64:  # cutting a text into chunks adds some tokens, but not so many
            return True
    return False


class RequestBuilder:
    """Builds engine requests for one model."""

    def __init__(
        self,
        encoder: PromptEncoder,
        limits: Limits,
        *,
        vocab: int,
        context_length: int,
        settings: GenerationSettings = NO_SETTINGS,
    ) -> None:
        """`context_length` is for a prompt and its completion together; `settings` come from the model's folder."""
        self.encoder, self.limits, self.settings = encoder, limits, settings
        self.vocab, self.context_length = vocab, context_length
        self.tokenizer, self.template = encoder.tokenizer, encoder.template
        self.eos_ids = encoder.special.eos_ids
        """End-of-sequence ids: they end a sequence and are no part of its text."""

    def build(self, body: ChatRequest | CompletionRequest, grammar: Grammar | None = None) -> list[Request]:
        """Return a request for each sequence: `n` for the first prompt, then `n` for the second, and so on."""
        self._check(body)
        prompts = [self._conversation(body)] if isinstance(body, ChatRequest) else self._prompts(body)
        top, requests = body.alternatives, list[Request]()
        for prompt in prompts:
            sampling = self._sampling(body, self._max_tokens(len(prompt), body.max_new_tokens))
            for i in range(body.count):
                seed = None if body.seed is None else body.seed + i
                mask = None if grammar is None else Grammar(grammar.first, grammar.vocab)  # a state for each sequence
                settings = replace(sampling, seed=seed)
                requests.append(Request(tuple(prompt), settings, top or 0, mask=mask, likely=top is not None))
        return requests

    def _check(self, body: ChatRequest | CompletionRequest) -> None:
        limits = self.limits
        if body.stream_options is not None and not body.stream:
            raise ApiError(400, "stream_options needs stream = true", "C004", "stream_options")
        if body.count > limits.n:
            raise ApiError(400, f"n = {body.n}; the limit is {limits.n}", "C003", "n")
        if len(body.stops) > limits.stop:
            raise ApiError(400, f"{len(body.stops)} stop strings; the limit is {limits.stop}", "C003", "stop")
        if not all(0 < len(stop) <= limits.stop_characters for stop in body.stops):
            raise ApiError(400, f"a stop string has 1 to {limits.stop_characters} characters", "C003", "stop")
        if isinstance(body, ChatRequest) and body.top_logprobs and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs = true", "C004", "top_logprobs")
        if isinstance(body, CompletionRequest) and body.echo and body.logprobs is not None:
            raise unsupported("echo", "the log-probabilities of prompt tokens are not computed")
        if (top := body.alternatives or 0) > limits.top_logprobs:
            name = "top_logprobs" if isinstance(body, ChatRequest) else "logprobs"
            raise ApiError(400, f"{name} = {top}; the limit is {limits.top_logprobs}", "C003", name)

    def _max_tokens(self, prompt: int, wanted: int | None) -> int:
        if prompt + (wanted or 1) > self.context_length:
            new = f" and max_tokens is {wanted}" if wanted else ""
            message = f"the prompt has {prompt} tokens{new}; the context length is {self.context_length} tokens"
            raise ApiError(400, message, "D001", "max_tokens" if wanted and prompt < self.context_length else None)
        return wanted or min(
            self.settings.sampling.get("max_tokens", self.context_length), self.context_length - prompt
        )

    def _sampling(self, body: ChatRequest | CompletionRequest, max_tokens: int) -> Sampling:
        """Use the request's settings first, then those of the model's folder, then the defaults of OpenAI's API."""
        given = {
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": None if body.top_k is None else max(0, body.top_k),
            "min_p": body.min_p,
            "presence": body.presence_penalty,
            "frequency": body.frequency_penalty,
            "repetition": body.repetition_penalty,
            "stop_strings": body.stops or None,
            "max_tokens": body.max_new_tokens,
        }
        given = {name: value for name, value in given.items() if value is not None}
        return Sampling(**{"temperature": 1.0, **self.settings.fields(given), "max_tokens": max_tokens})

    def _prompts(self, body: CompletionRequest) -> list[list[int]]:
        special = self.encoder.special
        given: Any = [[]] if body.prompt in (None, []) else body.prompt
        if isinstance(given, str) or isinstance(given[0], int):
            given = [given]
        if len(given) * body.count > self.limits.texts:  # before all of them are tokenized
            message = f"{len(given)} prompts times n = {body.count}; the limit is {self.limits.texts} sequences"
            raise ApiError(400, message, "D001", "prompt")
        prompts = [
            self._text(each) if isinstance(each, str) else list(each) or [start_token(special)] for each in given
        ]
        if (largest := max(max(prompt, default=0) for prompt in prompts)) >= self.vocab:
            raise ApiError(400, f"token {largest} does not exist: the vocabulary has {self.vocab}", "D001", "prompt")
        return prompts

    def _check_length(self, text: str) -> None:
        if far_too_long(self.tokenizer, text, self.context_length):
            message = f"the prompt has far more tokens than the context length of {self.context_length}"
            raise ApiError(400, message, "D001")

    def _text(self, text: str) -> list[int]:
        self._check_length(text)
        return self.encoder.text(text)

    def _conversation(self, body: ChatRequest) -> list[int]:
        if self.template is None:
            message = "this model has no chat template; use /v1/completions"
            raise ApiError(400, message, "D008", "messages")
        if len(body.messages) > self.limits.messages:
            many = f"{len(body.messages)} messages; the limit is {self.limits.messages}"
            raise ApiError(400, many, "D001", "messages")
        rows = [
            {"role": "system" if message.role == "developer" else message.role, "content": _content(message, i)}
            | ({"name": message.name} if message.name is not None else {})
            for i, message in enumerate(body.messages)
        ]
        return self.encoder.chat(rows, self._check_length)


def _content(message: Message, number: int) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type != "text":
            where = f"messages.{number}.content"
            raise unsupported(where, f"a part of type {part.type[:40]!r}; this server takes only text")
        if part.text is None:
            raise DataError("D007", f"message {number + 1} has a part of type text without a text")
    return "".join(part.text or "" for part in content)


class Grammars:
    """Compiles the grammars of one model's requests, one at a time. Only the event loop uses it."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits, *, vocab: int, eos_ids: Sequence[int]) -> None:
        self.tokenizer, self.limits, self.vocab, self.eos_ids = tokenizer, limits, vocab, eos_ids
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-grammar")
        """One thread: the grammars of many clients together take no more than one core."""
        self.open = 0
        """Requests that wait for their grammar, with the one that is being compiled."""

    async def compile(self, response_format: ResponseFormat | None) -> Grammar | None:
        """Compile what a response has to follow. Compilation ends early when the client disconnects."""
        if response_format is None or response_format.type == "text":
            return None
        if self.open >= self.limits.grammars:
            raise overloaded(f"{self.open} JSON schemas wait to be compiled")
        gone = threading.Event()
        self.open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, self._compile, response_format, gone)
        finally:
            self.open -= 1
            gone.set()

    def _compile(self, response_format: ResponseFormat, gone: threading.Event) -> Grammar:
        return self._patterns.schema(self._schema(response_format), gone.is_set)

    def _schema(self, response_format: ResponseFormat) -> Mapping[str, Any]:
        if response_format.type == "json_object":
            return {"type": "object"}
        if response_format.json_schema is None:
            raise ApiError(400, "type json_schema needs a json_schema", "C004", "response_format.json_schema")
        schema = response_format.json_schema.rules
        size = len(json.dumps(schema, ensure_ascii=False).encode())
        if size > self.limits.schema_bytes:
            message = f"the JSON schema has {size:,} bytes; the limit is {self.limits.schema_bytes:,}"
            raise ApiError(400, message, "C003", "response_format.json_schema")
        return schema

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self.tokenizer, self.vocab, self.eos_ids)
