"""/v1/run and /v1/embeddings: the tasks that the served model can do, as the registry has them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol, TypeVar

from headway.data.chat_template.template import special_token_strings
from headway.data.images.decode import image_size
from headway.errors import DataError
from headway.generate.engine.request import Event
from headway.generate.score import score_prompt
from headway.serve.errors import ApiError
from headway.serve.limits import Limits
from headway.serve.requests import far_too_long
from headway.tasks.base import Json, Task
from headway.tasks.predictor import Loaded, Predictor
from headway.tasks.registry import fitting, known_task

T = TypeVar("T")
BATCH = 16
"""Inputs computed at a time; between two batches a disconnected client is noticed."""
LETTERS = 1_000_000
"""Characters of one request; a second text counts once for each input it stands beside."""
SECOND = ("pair", "context")
"""The fields of a request that may bring a second text."""


class Body(Protocol):
    """A request with inputs; a request to /v1/run may also have `pair` or `context`."""

    @property
    def input(self) -> Any: ...


class Tasks:
    """Computes requests one after another: two batches at a time would only compete for memory."""

    def __init__(self, bundle: Loaded, limits: Limits, context_length: int | None) -> None:
        """`context_length` is the number of tokens that the model reads; None: no limit."""
        self.bundle, self.limits, self.context_length = bundle, limits, context_length
        self.tokenizer = bundle.tokenizer
        special = () if self.tokenizer is None else self.tokenizer.special
        found = fitting(bundle.model.config, special)
        if (own := known_task(bundle.named_task)) is not None and own not in found:
            found.insert(0, own)
        readable = [task for task in found if task.takes != "text" or self.tokenizer is not None]
        self.tasks = {task.verb or task.name: task for task in readable if not task.generates}
        self.names = list(self.tasks)
        self.embedder = next((name for name, task in self.tasks.items() if "nearest" in task.options), "")
        """The task behind /v1/embeddings; empty where the model has no vectors."""
        self.transcriber = next((task for task in self.tasks.values() if task.formats), None)
        """The task behind /v1/audio/transcriptions."""
        self.predictor = cache(self._predictor)
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-task")
        self._since: float | None = None
        """When the present batch began."""
        self.reading = threading.Lock()
        """Tokenizing uses all cores and a few hundred bytes per token, so one request is tokenized at a time."""

    def _predictor(self, name: str) -> Predictor[Any, Any]:
        return self.tasks[name].load_predictor()(self.bundle)

    def sample(self, name: str) -> dict[str, Any]:
        """A request to try a task with, without the model's name."""
        task, mask = self.tasks[name], ""
        if self.tokenizer is not None:
            mask = special_token_strings(self.tokenizer).get("mask_token", "")
        fields = task.tries.request or {"input": "Hello"}
        sample = {key: text.replace("{mask}", mask) if isinstance(text, str) else text for key, text in fields.items()}
        if task.wants_second(self.bundle.model.config) and task.second not in sample:
            sample[task.second] = sample["input"]
        return sample

    def choose(self, name: str | None) -> str:
        """The task that a request means."""
        if not self.names:
            raise ApiError(400, "this model continues texts and has no other task", "D001", "model")
        if name is not None:
            name = next((verb for verb, task in self.tasks.items() if name in (verb, task.name)), name)
        if name is not None and name not in self.names:
            able = ", ".join(self.names)
            raise ApiError(400, f"this model cannot {name[:40]!r}; it can {able}", "C003", "task")
        return name or self.names[0]

    def check(self, body: Body, name: str) -> tuple[list[Any], int]:
        """The examples of a request and the number of their tokens."""
        task, inputs = self.tasks[name], self._spelled(body.input)
        if not 0 < len(inputs) <= self.limits.inputs:
            raise ApiError(400, f"{len(inputs)} inputs; there should be 1 to {self.limits.inputs}", "D001", "input")
        if task.takes != "text":
            self._second(body, task, len(inputs))
            examples = [self._parse(task, raw, i) for i, raw in enumerate(inputs)]
            if task.takes == "image":
                self._check_images(examples)
            return examples, 0
        texts, own = zip(*(self._text(task, raw, i) for i, raw in enumerate(inputs)), strict=True)
        second = self._second(body, task, len(texts)) if not any(own) else [each or "" for each in own]
        return self._texts(task, list(texts), second)

    def _check_images(self, examples: list[Any]) -> None:
        """Refuse images that cannot be opened, or that would take much memory, before any is decoded."""
        for number, example in enumerate(examples):
            if (image := getattr(example, "image", None)) is None:
                continue  # a text, for a model of images and texts
            try:
                width, height = image_size(image)
            except DataError as error:
                raise ApiError(400, f"input {number}: {error.message}", error.code, "input") from None
            if width * height > self.limits.image_pixels:
                message = f"input {number} has {width} × {height} pixels; the limit is {self.limits.image_pixels:,}"
                raise ApiError(400, message, "D001", "input")

    def _spelled(self, given: Any) -> list[Any]:
        """The inputs of a request. A list of token ids stands for the text of these tokens, as in OpenAI's API."""
        inputs = given if isinstance(given, list) else [given]
        if inputs and all(isinstance(each, int) for each in inputs):
            inputs = [inputs]
        return [self._decoded(each) if isinstance(each, list) else each for each in inputs]

    def _decoded(self, ids: list[int]) -> str:
        tokenizer = self.bundle.require_tokenizer()
        if (largest := max(ids, default=0)) >= tokenizer.vocab_size:
            message = f"token {largest} does not exist: the vocabulary has {tokenizer.vocab_size}"
            raise ApiError(400, message, "D001", "input")
        return tokenizer.decode(ids)

    def _parse(self, task: Task, raw: Any, number: int) -> Any:
        try:
            return task.parse_request(raw if isinstance(raw, Mapping) else {"input": raw})
        except DataError as error:
            raise ApiError(400, f"input {number}: {error.message}", error.code, "input") from None

    def _text(self, task: Task, raw: Any, number: int) -> tuple[str, str | None]:
        """A text, and the second text that an object may bring with it."""
        text, second = (raw.get("input"), raw.get(task.second)) if isinstance(raw, Mapping) else (raw, None)
        if not isinstance(text, str) or not isinstance(second, str | None):
            raise ApiError(400, f"input {number} should be a text", "C002", "input")
        return text, second

    def _texts(self, task: Task, texts: list[str], second: list[str] | None) -> tuple[list[Any], int]:
        if (size := sum(map(len, [*texts, *(second or [])]))) > LETTERS:
            field = task.second if second else "input"
            raise ApiError(400, f"{size:,} characters to read; the limit is {LETTERS:,}", "D001", field)
        self._check_lengths(texts, second, task)
        with self.reading:
            read = self.bundle.require_tokenizer().encode_batch(texts, second)
        for i, count in enumerate(len(encoded.ids) for encoded in read):
            if count == 0 or not texts[i].strip():
                raise ApiError(400, f"input {i} has no tokens", "D001", "input")
            if second is not None and not second[i].strip():
                raise ApiError(400, f"{task.second} {i} has no tokens", "D001", task.second)
            if self.context_length is not None and count > self.context_length and not task.windows:
                message = f"input {i} has {count} tokens; the model reads {self.context_length}"
                raise ApiError(400, message, "D001", "input")
        raws = [{"input": text} | ({} if second is None else {task.second: second[i]}) for i, text in enumerate(texts)]
        return [self._parse(task, raw, i) for i, raw in enumerate(raws)], sum(len(encoded.ids) for encoded in read)

    def _check_lengths(self, texts: list[str], second: list[str] | None, task: Task) -> None:
        """Refuse texts that are far too long before they are tokenized; equal texts are checked once."""
        if self.context_length is None or task.windows:
            return
        for name, several in (("input", texts), (task.second, second or [])):
            for text in dict.fromkeys(several):
                if far_too_long(self.bundle.require_tokenizer(), text, self.context_length):
                    i = several.index(text)
                    message = f"{name} {i} has far more tokens than the model reads, which is {self.context_length}"
                    raise ApiError(400, message, "D001", name)

    def _second(self, body: Body, task: Task, count: int) -> list[str] | None:
        """A second text for each input: its own, or one for all."""
        for name in SECOND:
            if name != task.second and getattr(body, name, None) is not None:
                raise ApiError(400, f"{task.verb or task.name} does not read a {name}", "C004", name)
        given = getattr(body, task.second, None) if task.second else None
        wanted = task.wants_second(self.bundle.model.config)
        if given is None:
            if wanted:
                raise ApiError(400, f"{task.verb or task.name} needs a {task.second}", "C004", task.second)
            return None
        if wanted is False:
            message = f"the model was trained on single texts: it does not read a {task.second}"
            raise ApiError(400, message, "C004", task.second)
        if isinstance(given, str):
            return [given] * count
        if len(given) != count:
            message = f"{count} inputs and {len(given)} of {task.second}: give as many, or one text"
            raise ApiError(400, message, "D001", task.second)
        return list(given)

    async def run(self, name: str, examples: Sequence[Any]) -> list[Json]:
        found, predictor = list[Json](), self.predictor(name)
        for start in range(0, len(examples), BATCH):
            found += await self.in_turn(_predict, predictor, examples[start : start + BATCH])
        return [{"index": i, **result} for i, result in enumerate(found)]

    async def score(self, prompts: Iterable[tuple[int, ...]], top: int) -> dict[tuple[int, ...], list[Event]]:
        """The tokens of prompts with their log-probabilities; the first token of a prompt has none."""
        found: dict[tuple[int, ...], list[Event]] = {}
        for prompt in prompts:
            scored = await self.in_turn(score_prompt, self.bundle.model, prompt, top)
            later = [Event(i, "", own, tuple(best)) for i, (own, best) in zip(prompt[1:], scored, strict=True)]
            found[prompt] = [Event(prompt[0]), *later]
        return found

    async def in_turn(self, work: Callable[..., T], *arguments: Any) -> T:
        """Compute something after all that was asked for before it."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._timed, work, *arguments)

    def _timed(self, work: Callable[..., T], *arguments: Any) -> T:
        self._since = time.monotonic()
        try:
            return work(*arguments)
        finally:
            self._since = None

    def step_seconds(self) -> float:
        """How long the present batch has taken: a watchdog can tell when it hangs."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since


def _predict(predictor: Predictor[Any, Any], examples: Sequence[Any]) -> list[Json]:
    """The results of some examples. A result says how many tokens were read where its input was truncated."""
    found = [prediction.to_dict() for prediction in predictor.predict(examples)]
    if predictor.truncated(examples)[0]:
        for example, result in zip(examples, found, strict=True):
            count, limit = predictor.truncated([example])
            if count:
                result["truncated_to"] = limit
    return found
