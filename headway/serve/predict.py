"""What models do with texts beside going on with them: the rows of TASKS, asked for at /v1/run.

A task is a function that has a result for each of some texts, the same as `headway run` has. A new one is one row more:
what a model can do, its card and the line that is printed to try it follow from the table.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headway.config.model import ModelConfig, TokensConfig
from headway.config.recipe import DataConfig, Recipe
from headway.data.chat_template.template import special_token_strings
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.hub.generation_config import read_generation
from headway.model.model import Model
from headway.serve.errors import ApiError
from headway.serve.limits import Limits
from headway.serve.requests import far_too_long
from headway.tasks.inputs import TaskInput
from headway.tasks.predictions import predictor
from headway.tasks.seq2seq.translate import beam_for, recipe_of, translate

Json = dict[str, Any]
BATCH = 16
"""Texts computed at one time; between two batches a client that has gone is noticed."""
LETTERS = 1_000_000
"""Characters of one request, those of a second text counted with each text that it stands beside."""
LONGEST = 512
"""Tokens that a text is turned into at most, where the model has no limit of its own."""


class Bundle(Protocol):
    """A model with its tokenizer, as `headway.load` gives it."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> Model: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def recipe(self) -> Recipe | None: ...
    def require_tokenizer(self) -> Tokenizer: ...


class Texts(Protocol):
    """A request about texts; one for /v1/run may have second ones, `pair` or `context`."""

    @property
    def input(self) -> str | list[str]: ...


@dataclass(frozen=True)
class Task:
    fits: Callable[[ModelConfig, Tokenizer], bool]
    """Whether a model like this can do it."""
    run: Callable[[Bundle, Sequence[TaskInput]], list[Json]]
    """A result for each text; a DataError where there can be none."""
    sample: Mapping[str, str] = field(default_factory=lambda: {"input": "Hello"})
    """A request to try it with; {mask} stands for the tokenizer's."""
    whole: bool = True
    """Whether a text that the model cannot read at one time is refused; else it is read in windows."""
    second: str = ""
    """The field that brings each text a second one …"""
    needed: bool = False
    """… without which there is nothing to do."""


def _predict(name: str) -> Callable[[Bundle, Sequence[TaskInput]], list[Json]]:
    """A task of `headway run`, as the model was trained for it."""

    def run(bundle: Bundle, inputs: Sequence[TaskInput]) -> list[Json]:
        model, recipe = bundle.model, bundle.recipe
        if recipe is None or recipe.task != name:
            recipe = Recipe(data=DataConfig(length=model.config.max_length or LONGEST))
        return predictor(name, model, bundle.require_tokenizer(), recipe)(inputs)

    return run


def rewrite(bundle: Bundle, inputs: Sequence[TaskInput]) -> list[Json]:
    """What an encoder–decoder makes of a text: its translation, its summary, whatever it was trained for."""
    recipe = recipe_of(bundle.model, bundle.folder, bundle.recipe)
    beam = replace(beam_for(recipe), **read_generation(bundle.folder).rules)
    found = translate(bundle.model, bundle.require_tokenizer(), [item.text for item in inputs], recipe, beam)
    return [{"text": best[0].text} for best in found]


def _reads_text(config: ModelConfig) -> bool:
    return isinstance(config.source or config.target, TokensConfig)


def _classifies(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    labels = 0 if config.classify is None else config.classify.labels
    return labels > 0 and config.kind != "encoder-decoder" and _reads_text(config)


def _tags(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    return config.tag is not None and _reads_text(config)


def _answers(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    return config.span is not None and _reads_text(config)


def _rewrites(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    starts = config.lm is not None and config.special.start is not None
    return starts and config.kind == "encoder-decoder" and _reads_text(config)


def _fills(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    return config.kind == "encoder" and config.lm is not None and "mask" in tokenizer.special


def _embeds(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    return isinstance(config.source, TokensConfig)


TASKS: dict[str, Task] = {
    "classify": Task(_classifies, _predict("classify"), second="pair"),
    "tag": Task(_tags, _predict("tag"), {"input": "Anna met Boris in Oslo"}, whole=False),
    "answer": Task(
        _answers,
        _predict("answer"),
        {"input": "Where does Anna live?", "context": "Anna lives in Oslo."},
        whole=False,
        second="context",
        needed=True,
    ),
    "rewrite": Task(_rewrites, rewrite),
    "fill": Task(_fills, _predict("mlm"), {"input": "The sky is {mask}."}),
    "embed": Task(_embeds, _predict("embed")),
}
"""By name, in the order in which they are tried when a request names none."""


class Tasks:
    """Answers requests one after another: two batches at one time would only take each other's memory."""

    def __init__(self, bundle: Bundle, limits: Limits, room: int | None) -> None:
        """`room` is the number of tokens the model reads; None when nothing limits it."""
        self.bundle, self.limits, self.room = bundle, limits, room
        self.tokenizer = bundle.require_tokenizer()
        self.names = [name for name, task in TASKS.items() if task.fits(bundle.model.config, self.tokenizer)]
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-task")
        self.reading = threading.Lock()
        """One request is tokenized at a time: it takes all cores, and a few hundred bytes for each token."""

    def sample(self, name: str) -> dict[str, str]:
        """A request for a task, but for the model's name."""
        mask = special_token_strings(self.tokenizer).get("mask_token", "")
        sample = {key: text.replace("{mask}", mask) for key, text in TASKS[name].sample.items()}
        second = TASKS[name].second
        return {**sample, second: sample["input"]} if self._paired(name) and second not in sample else sample

    def _paired(self, name: str) -> bool | None:
        """Whether a text must have a second one beside it; None: it may."""
        head = self.bundle.model.config.classify
        return head.pairs if name == "classify" and head is not None else TASKS[name].needed or None

    def choose(self, name: str | None) -> str:
        """The task that a request means."""
        if not self.names:
            raise ApiError(400, "this model writes on from a text, and does nothing else with it", "D001", "model")
        if name is not None and name not in self.names:
            able = ", ".join(self.names)
            raise ApiError(400, f"this model cannot {name[:40]!r}; it can {able}", "C003", "task")
        return name or self.names[0]

    def check(self, asked: Texts, task: str) -> tuple[list[TaskInput], int]:
        """The texts of a request and the number of their tokens."""
        texts, second = [asked.input] if isinstance(asked.input, str) else asked.input, TASKS[task].second
        if not 0 < len(texts) <= self.limits.inputs:
            message = f"{len(texts)} inputs; there should be 1 to {self.limits.inputs}"
            raise ApiError(400, message, "D001", "input")
        pairs = self._pairs(asked, len(texts), task)
        if (size := sum(map(len, [*texts, *(pairs or [])]))) > LETTERS:
            raise ApiError(
                400, f"{size:,} characters to read; the limit is {LETTERS:,}", "D001", second if pairs else "input"
            )
        self._check_lengths(texts, pairs, task)
        with self.reading:
            read = self.tokenizer.encode_batch(texts, pairs)
        for i, count in enumerate(len(encoded.ids) for encoded in read):
            if count == 0 or not texts[i].strip():
                raise ApiError(400, f"input {i} has no tokens", "D001", "input")
            if pairs is not None and not pairs[i].strip():
                raise ApiError(400, f"{second} {i} has no tokens", "D001", second)
            if self.room is not None and count > self.room and TASKS[task].whole:
                message = f"input {i} has {count} tokens; the model reads {self.room}"
                raise ApiError(400, message, "D001", "input")
        inputs = [TaskInput(text, None if pairs is None else pairs[i]) for i, text in enumerate(texts)]
        return inputs, sum(len(encoded.ids) for encoded in read)

    def _check_lengths(self, texts: list[str], pairs: list[str] | None, task: str) -> None:
        """Before all is tokenized; one text for all is looked at once."""
        if self.room is None or not TASKS[task].whole:
            return
        for name, several in (("input", texts), (TASKS[task].second, pairs or [])):
            for text in dict.fromkeys(several):
                if far_too_long(self.tokenizer, text, self.room):
                    i = several.index(text)
                    message = f"{name} {i} has far more tokens than the model reads, which is {self.room}"
                    raise ApiError(400, message, "D001", name)

    def _pairs(self, asked: Texts, count: int, task: str) -> list[str] | None:
        """A second text for each: its own, or one for all."""
        second, paired = TASKS[task].second, self._paired(task)
        for name in ("pair", "context"):
            if name != second and getattr(asked, name, None) is not None:
                raise ApiError(400, f"{name} is nothing that {task} reads", "C004", name)
        given = getattr(asked, second, None) if second else None
        if given is None:
            if paired:
                raise ApiError(400, f"{task} needs a {second}", "C004", second)
            return None
        if paired is False:
            raise ApiError(
                400, f"the model was trained on single texts: {second} is nothing that it reads", "C004", second
            )
        if isinstance(given, str):
            return [given] * count
        if len(given) != count:
            message = f"{count} inputs and {len(given)} of {second}: give as many, or one text"
            raise ApiError(400, message, "D001", second)
        return list(given)

    async def run(self, name: str, inputs: Sequence[TaskInput]) -> list[Json]:
        loop, found = asyncio.get_running_loop(), list[Json]()
        for start in range(0, len(inputs), BATCH):
            part = inputs[start : start + BATCH]
            found += await loop.run_in_executor(self.pool, TASKS[name].run, self.bundle, part)
        return [{"index": i, **result} for i, result in enumerate(found)]
