"""Requests to what the engine takes: tokens of a prompt, and how to go on from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headway.config import SpecialTokens
from headway.data.template import ChatTemplate, special_strings
from headway.data.tokenizer import Tokenizer, backend_errors
from headway.errors import DataError
from headway.generate.engine import Request
from headway.generate.grammar import Grammar
from headway.generate.sampling import Sampling
from headway.serve.lengths import far_too_long
from headway.serve.limits import Limits
from headway.serve.problems import Problem, unsupported
from headway.serve.schemas import ChatRequest, CompletionRequest, Message, WritingRequest

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

NO_TEMPLATE = "this model has no chat template, so it cannot chat; use /v1/completions"
MARKS = tuple(chr(code) for code in range(0x10FF00, 0x10FFFE))
"""Characters that Unicode leaves to private use, to be put into words for a while."""


@dataclass(frozen=True)
class Job:
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


class Prompts:
    """Makes jobs for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        limits: Limits,
        *,
        vocab: int,
        special: SpecialTokens,
        room: int,
    ) -> None:
        """`room` is for a prompt and its answer together."""
        self.tokenizer, self.template, self.limits = tokenizer, template, limits
        self.vocab, self.room = vocab, room
        self.start = special.bos or 0
        """The token that an empty prompt stands for."""
        self.ends = () if special.eos is None else (special.eos,) if isinstance(special.eos, int) else special.eos
        """Tokens that end a text and are no part of it."""

    def chat(self, asked: ChatRequest, grammar: Grammar | None = None) -> Job:
        if self.template is None:
            raise Problem(400, NO_TEMPLATE, "D008", "messages")
        if len(asked.messages) > self.limits.messages:
            many = f"{len(asked.messages)} messages; the limit is {self.limits.messages}"
            raise Problem(400, many, "D001", "messages")
        if asked.top_logprobs and not asked.logprobs:
            raise Problem(400, "top_logprobs needs logprobs = true", "C004", "top_logprobs")
        top = self._top("top_logprobs", asked.top_logprobs or 0) if asked.logprobs else None
        wanted = asked.max_completion_tokens or asked.max_tokens
        self._check(asked)
        return self._job(asked, [self._conversation(asked.messages)], wanted, top, grammar)

    def complete(self, asked: CompletionRequest, grammar: Grammar | None = None) -> Job:
        self._check(asked)
        top = None if asked.logprobs is None else self._top("logprobs", asked.logprobs)
        if asked.echo and top is not None:
            raise unsupported("echo", "the probabilities of a prompt's own tokens are not known here")
        prompts = self._prompts(asked)
        if len(prompts) * (asked.n or 1) > self.limits.texts:
            many = f"{len(prompts)} prompts, {asked.n or 1} answers to each; the limit is {self.limits.texts} in all"
            raise Problem(400, many, "D001", "prompt")
        job = self._job(asked, prompts, asked.max_tokens or 16, top, grammar)
        if not asked.echo:
            return job
        return replace(job, prompts=[self.tokenizer.decode(request.prompt) for request in job.requests])

    def _job(
        self,
        asked: WritingRequest,
        prompts: list[list[int]],
        wanted: int | None,
        top: int | None,
        grammar: Grammar | None,
    ) -> Job:
        requests = []
        for prompt in prompts:
            sampling = self._sampling(asked, self._length(len(prompt), wanted))
            for i in range(asked.n or 1):
                seed = None if asked.seed is None else asked.seed + i
                request = Request(tuple(prompt), replace(sampling, seed=seed), top or 0, likely=top is not None)
                requests.append(request if grammar is None else _held(request, grammar))
        usage = bool(asked.stream_options and asked.stream_options.include_usage)
        return Job(requests, [""] * len(requests), sum(map(len, prompts)), top, bool(asked.stream), usage)

    def _check(self, asked: WritingRequest) -> None:
        limits = self.limits
        if asked.stream_options is not None and not asked.stream:
            raise Problem(400, "stream_options needs stream = true", "C004", "stream_options")
        if (asked.n or 1) > limits.n:
            raise Problem(400, f"n = {asked.n}; the limit is {limits.n}", "C003", "n")
        if len(asked.stops) > limits.stop:
            raise Problem(400, f"{len(asked.stops)} stop strings; the limit is {limits.stop}", "C003", "stop")
        if not all(0 < len(stop) <= limits.stop_characters for stop in asked.stops):
            raise Problem(400, f"a stop string has 1 to {limits.stop_characters} characters", "C003", "stop")

    def _top(self, name: str, value: int) -> int:
        if value > self.limits.top_logprobs:
            raise Problem(400, f"{name} = {value}; the limit is {self.limits.top_logprobs}", "C003", name)
        return value

    def _length(self, prompt: int, wanted: int | None) -> int:
        if prompt + (wanted or 1) > self.room:
            new = f" and max_tokens = {wanted}" if wanted else ""
            message = f"the prompt has {prompt} tokens{new}; together with its answer there is room for {self.room}"
            raise Problem(400, message, "D001", "max_tokens" if wanted and prompt < self.room else None)
        return wanted or self.room - prompt

    def _sampling(self, asked: WritingRequest, tokens: int) -> Sampling:
        def given(value: float | None, default: float) -> float:
            return default if value is None else value

        return Sampling(
            temperature=given(asked.temperature, 1.0),
            top_p=given(asked.top_p, 1.0),
            top_k=max(0, asked.top_k or 0),
            min_p=given(asked.min_p, 0.0),
            presence=given(asked.presence_penalty, 0.0),
            frequency=given(asked.frequency_penalty, 0.0),
            repetition=given(asked.repetition_penalty, 1.0),
            stop_strings=asked.stops,
            max_tokens=tokens,
        )

    def _prompts(self, asked: CompletionRequest) -> list[list[int]]:
        given = asked.prompt
        if given is None or given == []:
            return [[self.start]]
        if isinstance(given, str):
            given = [given]
        if isinstance(given[0], int):
            given = [given]
        if len(given) > self.limits.texts:  # before they are all tokenized
            raise Problem(400, f"{len(given)} prompts; the limit is {self.limits.texts}", "D001", "prompt")
        ids = [self._ids(p, special=True) if isinstance(p, str) else list(p) for p in given]
        for prompt in ids:
            if (largest := max(prompt, default=0)) >= self.vocab:
                raise Problem(400, f"there is no token {largest}: the model has {self.vocab}", "D001", "prompt")
        return [prompt or [self.start] for prompt in ids]

    def _ids(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text. One that is far too long is refused before all of it is read, which could take seconds."""
        if far_too_long(self.tokenizer, text, self.room):
            raise self._far_too_long()
        with backend_errors("the tokenizer cannot encode this text"):
            ids: list[int] = self.tokenizer.backend.encode_batch_fast([text], add_special_tokens=special)[0].ids
        return ids

    def _far_too_long(self) -> Problem:
        return Problem(400, f"the prompt has far more tokens than there is room for, which is {self.room}", "D001")

    # --- conversations

    def _conversation(self, messages: Sequence[Message]) -> list[int]:
        assert self.template is not None
        contents = [_content(message, i) for i, message in enumerate(messages)]
        mark = ""
        if self._special is not None and any(self._special.search(content) for content in contents):
            taken = set().union(self.template.source, *contents)
            mark = next(char for char in MARKS if char not in taken)
            contents = [self._special.sub(lambda found: _marked(found[0], mark), content) for content in contents]
        rows = [
            {"role": "system" if message.role == "developer" else message.role, "content": content}
            | ({"name": message.name} if message.name is not None else {})
            for message, content in zip(messages, contents, strict=True)
        ]
        strings = special_strings(self.tokenizer)
        text = self.template.render(rows, tokens=strings, add_generation_prompt=True)
        ids = self._read(text, mark) if mark else self._ids(text)
        if not ids:
            raise Problem(400, "the chat template makes no text of this conversation", "D008", "messages")
        return ids

    def _read(self, text: str, mark: str) -> list[int]:
        """Ids of a text in which some words only look like special tokens: those are marked, and read as letters."""
        names = "|".join(re.escape(_marked(name, mark)) for name in self._names)
        ids: list[int] = []
        for i, piece in enumerate(re.split(f"({names})", text)):
            if i % 2:
                ids += self._literal.encode(piece.replace(mark, ""), add_special_tokens=False).ids
            elif piece:
                ids += self._ids(piece)
            if len(ids) > 2 * self.room + 64:  # there may be a hundred thousand of them
                raise self._far_too_long()
        return ids

    @cached_property
    def _names(self) -> list[str]:
        """Special tokens, longest first."""
        added = self.tokenizer.backend.get_added_tokens_decoder().values()
        return sorted((token.content for token in added if token.special and token.content), key=len, reverse=True)

    @cached_property
    def _special(self) -> re.Pattern[str] | None:
        return re.compile("|".join(map(re.escape, self._names))) if self._names else None

    @cached_property
    def _literal(self) -> Backend:
        """The tokenizer, blind to special tokens."""
        from tokenizers import Tokenizer as Backend

        backend = Backend.from_str(self.tokenizer.backend.to_str())
        backend.encode_special_tokens = True
        return backend


def _held(request: Request, grammar: Grammar) -> Request:
    """A request whose text follows a grammar; each text has its own place in it."""
    return replace(request, mask=Grammar(grammar.first, grammar.vocab))


def _marked(name: str, mark: str) -> str:
    return name[0] + mark + name[1:]


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
