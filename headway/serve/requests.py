"""Bodies of chat and completion requests to engine requests: prompt ids, sampling, a grammar."""

from __future__ import annotations

import asyncio
import bisect
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

from headway.config.generation import Bias
from headway.data.prompts import PromptEncoder, start_token
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.generate.engine.engine import Request
from headway.generate.grammar.grammar import Grammar, Patterns
from headway.generate.sampling.sampler import Sampling
from headway.hub.generation_config import GenerationSettings
from headway.serve.chat.call_grammar import call_grammar
from headway.serve.chat.conversation import Conversations, ToolUse
from headway.serve.errors import ApiError, overloaded
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
        self.conversations = Conversations(encoder, limits)

    def build(
        self, body: ChatRequest | CompletionRequest, grammar: Grammar | None = None, tools: ToolUse | None = None
    ) -> list[Request]:
        """Return a request for each sequence: `n` for the first prompt, then `n` for the second, and so on."""
        self._check(body)
        if isinstance(body, ChatRequest):
            prompts = [self.conversations.encode(body, self._check_length)]
        else:
            prompts = self._prompts(body)
        shown = {} if tools is None else tools.shown
        top, requests = body.alternatives, list[Request]()
        for prompt in prompts:
            sampling = self._sampling(body, self._max_tokens(len(prompt), body.max_new_tokens))
            for i in range(body.count):
                seed = None if body.seed is None else body.seed + i
                mask = None if grammar is None else Grammar(grammar.first, grammar.vocab)  # a state for each sequence
                settings = replace(sampling, seed=seed)
                likely = top is not None
                requests.append(Request(tuple(prompt), settings, top or 0, mask=mask, likely=likely, shown=shown))
        return requests

    def shorten(self, body: ChatRequest) -> ChatRequest:
        """Leave out the oldest turns of a conversation, as few as possible, so that it fits.

        System messages stay. A turn begins with a message of the user, so a call is never parted from its result.
        """
        system = [message for message in body.messages if message.role in ("system", "developer")]
        others = [message for message in body.messages if message.role not in ("system", "developer")]
        turns = [i for i, message in enumerate(others) if i == 0 or message.role == "user"]
        first = bisect.bisect_left(turns, True, hi=len(turns) - 1, key=lambda i: self._fits(body, system + others[i:]))
        return _with_messages(body, system + others[turns[first] :]) if first else body

    def _fits(self, body: ChatRequest, messages: list[Message]) -> bool:
        try:
            ids = self.conversations.encode(_with_messages(body, messages), self._check_length)
        except ApiError:
            return False
        return len(ids) + (body.max_new_tokens or 1) <= self.context_length

    def _check(self, body: ChatRequest | CompletionRequest) -> None:
        limits = self.limits
        if isinstance(body, ChatRequest) and self.template is None:
            raise ApiError(400, "this model has no chat template; use /v1/completions", "D008", "messages")
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
        if (top := body.alternatives or 0) > limits.top_logprobs:
            name = "top_logprobs" if isinstance(body, ChatRequest) else "logprobs"
            raise ApiError(400, f"{name} = {top}; the limit is {limits.top_logprobs}", "C003", name)

    def _max_tokens(self, prompt: int, wanted: int | None) -> int:
        if prompt + (1 if wanted is None else wanted) > self.context_length:
            new = f" and max_tokens is {wanted}" if wanted else ""
            message = f"the prompt has {prompt} tokens{new}; the context length is {self.context_length} tokens"
            raise ApiError(400, message, "D001", "max_tokens" if wanted and prompt < self.context_length else None)
        if wanted is not None:
            return wanted
        own: int = self.settings.sampling.get("max_tokens", self.context_length)
        return min(own, self.context_length - prompt)

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
        fields = {"temperature": 1.0, **self.settings.fields(given), "max_tokens": max_tokens}
        return Sampling(**fields | {"bias": (*fields.get("bias", ()), *self._bias(body))})

    def _bias(self, body: ChatRequest | CompletionRequest) -> list[Bias]:
        """Biases of single tokens, besides those of the model's folder."""
        given = body.logit_bias or {}
        if len(given) > self.limits.logit_bias:
            message = f"{len(given)} tokens; the limit is {self.limits.logit_bias}"
            raise ApiError(400, message, "C003", "logit_bias")
        found = {int(name): value for name, value in given.items()}
        if (largest := max(found, default=0)) >= self.vocab:
            message = f"token {largest} does not exist: the vocabulary has {self.vocab}"
            raise ApiError(400, message, "D001", f"logit_bias.{largest}")
        return [Bias(tokens=(token,), value=value) for token, value in found.items() if value]

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


def _with_messages(body: ChatRequest, messages: list[Message]) -> ChatRequest:
    return body.model_copy(update={"messages": messages})


class Grammars:
    """Compiles the grammars of one model's requests, one at a time. Only the event loop uses it."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits, *, vocab: int, eos_ids: Sequence[int]) -> None:
        self.tokenizer, self.limits, self.vocab, self.eos_ids = tokenizer, limits, vocab, eos_ids
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-grammar")
        """One thread: the grammars of many clients together take no more than one core."""
        self.open = 0
        """Requests that wait for their grammar, with the one that is being compiled."""

    async def compile(self, response_format: ResponseFormat | None, tools: ToolUse | None = None) -> Grammar | None:
        """Compile what a response has to follow. Compilation ends early when the client disconnects."""
        plain = response_format is None or response_format.type == "text"
        if plain and (tools is None or not (tools.forced or tools.strict)):
            return None
        if self.open >= self.limits.grammars:
            raise overloaded(f"{self.open} JSON schemas wait to be compiled")
        gone = threading.Event()
        self.open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self.pool, self._compile, None if plain else response_format, tools, gone
            )
        finally:
            self.open -= 1
            gone.set()

    def _compile(self, response_format: ResponseFormat | None, tools: ToolUse | None, gone: threading.Event) -> Grammar:
        """A response that must be a call follows no schema: only the arguments of the call do."""
        schema = None if response_format is None else self._schema(response_format)
        if tools is not None:
            return self._patterns.lark(call_grammar(tools.rules(schema)), gone.is_set)
        assert schema is not None
        return self._patterns.schema(schema, gone.is_set)

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
