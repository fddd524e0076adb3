"""Requests to what the engine takes: tokens of a prompt, and how to go on from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.data.prompts import PromptEncoder, start_token
from headway.errors import DataError
from headway.generate.engine.engine import Request
from headway.generate.grammar.grammar import Grammar
from headway.generate.sampling.sampler import Sampling
from headway.hub.generation_config import GenerationSettings
from headway.serve.errors import ApiError, unsupported
from headway.serve.lengths import far_too_long
from headway.serve.limits import Limits
from headway.serve.schemas import ChatRequest, CompletionRequest, GenerationRequest, Message

SILENT = GenerationSettings()
NO_TEMPLATE = "this model has no chat template, so it cannot chat; use /v1/completions"


@dataclass(frozen=True)
class PreparedRequest:
    """A request made ready for the engine: one entry per text to be written."""

    requests: list[Request]
    prompts: list[str]
    """The prompts as text, where they are to be repeated in the answer; else empty."""
    prompt_tokens: int
    """Each prompt counted once, however many answers it gets."""
    top: int | None
    """Alternatives to show beside each token; None shows no probabilities at all."""
    stream: bool
    usage: bool
    """Whether a stream ends with the numbers of tokens."""


class RequestBuilder:
    """Makes jobs for one model."""

    def __init__(
        self,
        encoder: PromptEncoder,
        limits: Limits,
        *,
        vocab: int,
        context_length: int,
        settings: GenerationSettings = SILENT,
    ) -> None:
        """`context_length` is for a prompt and its answer together; `settings` are those of the model's folder."""
        self.settings = settings
        self.encoder, self.limits, self.vocab, self.context_length = encoder, limits, vocab, context_length
        self.tokenizer, self.template = encoder.tokenizer, encoder.template
        self.ends = encoder.special.eos_ids
        """Tokens that end a text and are no part of it."""

    def chat(self, asked: ChatRequest, grammar: Grammar | None = None) -> PreparedRequest:
        if self.template is None:
            raise ApiError(400, NO_TEMPLATE, "D008", "messages")
        if len(asked.messages) > self.limits.messages:
            many = f"{len(asked.messages)} messages; the limit is {self.limits.messages}"
            raise ApiError(400, many, "D001", "messages")
        if asked.top_logprobs and not asked.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs = true", "C004", "top_logprobs")
        top = self._top("top_logprobs", asked.top_logprobs or 0) if asked.logprobs else None
        wanted = asked.max_completion_tokens or asked.max_tokens
        self._check(asked)
        return self._prepared(asked, [self._conversation(asked.messages)], wanted, top, grammar)

    def complete(self, asked: CompletionRequest, grammar: Grammar | None = None) -> PreparedRequest:
        self._check(asked)
        top = None if asked.logprobs is None else self._top("logprobs", asked.logprobs)
        if asked.echo and top is not None:
            raise unsupported("echo", "the probabilities of a prompt's own tokens are not known here")
        prompts = self._prompts(asked)
        if len(prompts) * (asked.n or 1) > self.limits.texts:
            many = f"{len(prompts)} prompts, {asked.n or 1} answers to each; the limit is {self.limits.texts} in all"
            raise ApiError(400, many, "D001", "prompt")
        prepared = self._prepared(asked, prompts, asked.max_tokens or 16, top, grammar)
        if not asked.echo:
            return prepared
        return replace(prepared, prompts=[self.tokenizer.decode(request.prompt) for request in prepared.requests])

    def _prepared(
        self,
        asked: GenerationRequest,
        prompts: list[list[int]],
        wanted: int | None,
        top: int | None,
        grammar: Grammar | None,
    ) -> PreparedRequest:
        requests = []
        for prompt in prompts:
            sampling = self._sampling(asked, wanted, self._length(len(prompt), wanted))
            for i in range(asked.n or 1):
                seed = None if asked.seed is None else asked.seed + i
                request = Request(tuple(prompt), replace(sampling, seed=seed), top or 0, likely=top is not None)
                requests.append(request if grammar is None else _with_grammar(request, grammar))
        usage = bool(asked.stream_options and asked.stream_options.include_usage)
        return PreparedRequest(requests, [""] * len(requests), sum(map(len, prompts)), top, bool(asked.stream), usage)

    def _check(self, asked: GenerationRequest) -> None:
        limits = self.limits
        if asked.stream_options is not None and not asked.stream:
            raise ApiError(400, "stream_options needs stream = true", "C004", "stream_options")
        if (asked.n or 1) > limits.n:
            raise ApiError(400, f"n = {asked.n}; the limit is {limits.n}", "C003", "n")
        if len(asked.stops) > limits.stop:
            raise ApiError(400, f"{len(asked.stops)} stop strings; the limit is {limits.stop}", "C003", "stop")
        if not all(0 < len(stop) <= limits.stop_characters for stop in asked.stops):
            raise ApiError(400, f"a stop string has 1 to {limits.stop_characters} characters", "C003", "stop")

    def _top(self, name: str, value: int) -> int:
        if value > self.limits.top_logprobs:
            raise ApiError(400, f"{name} = {value}; the limit is {self.limits.top_logprobs}", "C003", name)
        return value

    def _length(self, prompt: int, wanted: int | None) -> int:
        if prompt + (wanted or 1) > self.context_length:
            new = f" and max_tokens = {wanted}" if wanted else ""
            message = (
                f"the prompt has {prompt} tokens{new}; together with its answer there is room for {self.context_length}"
            )
            raise ApiError(400, message, "D001", "max_tokens" if wanted and prompt < self.context_length else None)
        return wanted or min(
            self.settings.sampling.get("max_tokens", self.context_length), self.context_length - prompt
        )

    def _sampling(self, asked: GenerationRequest, wanted: int | None, tokens: int) -> Sampling:
        """What the request says, else what the folder does, else what OpenAI's API does."""
        said = {
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "top_k": None if asked.top_k is None else max(0, asked.top_k),
            "min_p": asked.min_p,
            "presence": asked.presence_penalty,
            "frequency": asked.frequency_penalty,
            "repetition": asked.repetition_penalty,
            "stop_strings": asked.stops or None,
            "max_tokens": wanted,
        }
        given = {name: value for name, value in said.items() if value is not None}
        return Sampling(**{"temperature": 1.0, **self.settings.fields(given), "max_tokens": tokens})

    def _prompts(self, asked: CompletionRequest) -> list[list[int]]:
        given = asked.prompt
        if given is None or given == []:
            return [[start_token(self.encoder.special)]]
        if isinstance(given, str):
            given = [given]
        if isinstance(given[0], int):
            given = [given]
        if len(given) > self.limits.texts:  # before they are all tokenized
            raise ApiError(400, f"{len(given)} prompts; the limit is {self.limits.texts}", "D001", "prompt")
        ids = [self._text(p) if isinstance(p, str) else list(p) or [start_token(self.encoder.special)] for p in given]
        for prompt in ids:
            if (largest := max(prompt, default=0)) >= self.vocab:
                raise ApiError(400, f"there is no token {largest}: the model has {self.vocab}", "D001", "prompt")
        return ids

    def _check_size(self, text: str) -> None:
        if far_too_long(self.tokenizer, text, self.context_length):
            message = f"the prompt has far more tokens than there is room for, which is {self.context_length}"
            raise ApiError(400, message, "D001")

    def _text(self, text: str) -> list[int]:
        self._check_size(text)
        return self.encoder.text(text)

    def _conversation(self, messages: Sequence[Message]) -> list[int]:
        rows = [
            {"role": "system" if message.role == "developer" else message.role, "content": _content(message, i)}
            | ({"name": message.name} if message.name is not None else {})
            for i, message in enumerate(messages)
        ]
        return self.encoder.chat(rows, self._check_size)


def _with_grammar(request: Request, grammar: Grammar) -> Request:
    """A request whose text follows a grammar; each text has its own place in it."""
    return replace(request, mask=Grammar(grammar.first, grammar.vocab))


def _content(message: Message, number: int) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type != "text":
            raise unsupported(f"messages.{number}.content", f"only parts of text are read here, not {part.type[:40]!r}")
        if part.text is None:
            raise DataError("D007", f"message {number + 1} has a part of type text without a text")
    return "".join(part.text or "" for part in content)
