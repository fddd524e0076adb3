"""What models do with texts beside going on with them: the rows of TASKS, asked for at /v1/run.

A task is a function that has a result for each of some texts. A new one is one row more: what a model can do, its card
and the line that is printed to try it follow from the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from headway.config import ModelConfig, TokensConfig
from headway.data.template import special_strings
from headway.data.tokenizer import Tokenizer
from headway.errors import DataError
from headway.generate.decode import decode
from headway.generate.protocol import Source
from headway.generate.sampling import Sampling
from headway.model.model import Model
from headway.serve.limits import Limits
from headway.serve.problems import Problem

Json = dict[str, Any]
BATCH = 16
"""Texts computed at one time; between two batches a client that has gone is noticed."""
BEST = 5
"""Words shown for each mask."""
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
    def reader(self) -> Tokenizer: ...
    def embed(self, texts: list[str]) -> Tensor: ...


@dataclass(frozen=True)
class Task:
    fits: Callable[[ModelConfig, Tokenizer], bool]
    """Whether a model like this can do it."""
    run: Callable[[Bundle, list[str]], list[Json]]
    """A result for each text; a DataError where there can be none."""
    sample: str = "Hello"
    """A text to try it with; {mask} stands for the tokenizer's."""


def _padded(bundle: Bundle, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Ids of texts (B, T), and which of them are real."""
    rows = [torch.tensor(encoded.ids, dtype=torch.long) for encoded in bundle.reader().encode_batch(texts)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    keep = torch.arange(ids.shape[1])[None] < torch.tensor([len(row) for row in rows])[:, None]
    device = next(bundle.model.parameters()).device
    return ids.to(device), keep.to(device)


@torch.no_grad()
def classify(bundle: Bundle, texts: list[str]) -> list[Json]:
    """How well each label fits, by name: probabilities; of a single label, the score itself."""
    model, (ids, keep) = bundle.model, _padded(bundle, texts)
    scores = model.scores(model(ids, keep=keep))["classify"].float()
    names = model.config.labels or tuple(f"LABEL_{i}" for i in range(scores.shape[1]))
    shares = scores.softmax(-1) if scores.shape[1] > 1 else scores
    rows = [dict(zip(names, row, strict=True)) for row in shares.tolist()]
    return [{"label": max(row, key=row.__getitem__), "scores": row} for row in rows]


@torch.no_grad()
def fill(bundle: Bundle, texts: list[str]) -> list[Json]:
    """The likeliest tokens for each mask of a text, with their probabilities."""
    model, tokenizer, (ids, keep) = bundle.model, bundle.reader(), _padded(bundle, texts)
    masked = (ids == tokenizer.special["mask"]) & keep
    if (bare := (~masked.any(1)).nonzero()).numel():
        raise DataError(
            "D001", f"there is no {special_strings(tokenizer)['mask_token']} in {texts[int(bare[0])]!r:.40}"
        )
    best = model.lm(model(ids, keep=keep).hidden[masked]).float().softmax(-1).topk(BEST)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    found = iter([_words(tokenizer, tokens, values) for tokens, values in pairs])
    return [{"masks": [next(found) for _ in range(count)]} for count in masked.sum(1).tolist()]


def _words(tokenizer: Tokenizer, tokens: list[int], values: list[float]) -> list[Json]:
    pairs = zip(tokens, values, strict=True)
    return [{"text": tokenizer.decode([token]), "token": token, "probability": value} for token, value in pairs]


def embed(bundle: Bundle, texts: list[str]) -> list[Json]:
    return [{"embedding": row} for row in bundle.embed(texts).float().tolist()]


def rewrite(bundle: Bundle, texts: list[str]) -> list[Json]:
    """What an encoder–decoder makes of a text: its translation, its summary, whatever it was trained for."""
    model, (ids, keep) = bundle.model, _padded(bundle, texts)
    sampling = Sampling(temperature=0, max_tokens=min(LONGEST, model.config.max_length or LONGEST) - 1)
    written = [""] * len(texts)
    for piece in decode(model, None, sampling, source=Source(ids, keep), tokenizer=bundle.reader()):
        written[piece.row] += piece.text
    return [{"text": text} for text in written]


def _reads_text(config: ModelConfig) -> bool:
    return isinstance(config.source or config.target, TokensConfig)


def _classifies(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    labels = 0 if config.classify is None else config.classify.labels
    return labels > 0 and config.kind != "encoder-decoder" and _reads_text(config)


def _rewrites(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    starts = config.lm is not None and config.special.start is not None
    return starts and config.kind == "encoder-decoder" and _reads_text(config)


def _fills(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    return config.kind == "encoder" and config.lm is not None and "mask" in tokenizer.special


def _embeds(config: ModelConfig, tokenizer: Tokenizer) -> bool:
    return isinstance(config.source, TokensConfig)


TASKS: dict[str, Task] = {
    "classify": Task(_classifies, classify),
    "rewrite": Task(_rewrites, rewrite),
    "fill": Task(_fills, fill, "The sky is {mask}."),
    "embed": Task(_embeds, embed),
}
"""By name, in the order in which they are tried when a request names none."""


class Tasks:
    """Answers requests one after another: two batches at one time would only take each other's memory."""

    def __init__(self, bundle: Bundle, limits: Limits, room: int | None) -> None:
        """`room` is the number of tokens the model reads; None when nothing limits it."""
        self.bundle, self.limits, self.room = bundle, limits, room
        self.tokenizer = bundle.reader()
        self.names = [name for name, task in TASKS.items() if task.fits(bundle.model.config, self.tokenizer)]
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-task")

    def sample(self, name: str) -> str:
        return TASKS[name].sample.format(mask=special_strings(self.tokenizer).get("mask_token", ""))

    def choose(self, name: str | None) -> str:
        """The task that a request means."""
        if not self.names:
            raise Problem(400, "this model writes on from a text, and does nothing else with it", "D001", "model")
        if name is not None and name not in self.names:
            able = ", ".join(self.names)
            raise Problem(400, f"this model cannot {name[:40]!r}; it can {able}", "C003", "task")
        return name or self.names[0]

    def check(self, given: str | list[str]) -> tuple[list[str], int]:
        """The texts and the number of their tokens."""
        texts = [given] if isinstance(given, str) else given
        if not 0 < len(texts) <= self.limits.inputs:
            message = f"{len(texts)} inputs; there should be 1 to {self.limits.inputs}"
            raise Problem(400, message, "D001", "input")
        counts = [len(encoded.ids) for encoded in self.tokenizer.encode_batch(texts)]
        for i, count in enumerate(counts):
            if count == 0:
                raise Problem(400, f"input {i} has no tokens", "D001", "input")
            if self.room is not None and count > self.room:
                message = f"input {i} has {count} tokens; the model reads {self.room}"
                raise Problem(400, message, "D001", "input")
        return texts, sum(counts)

    async def run(self, name: str, texts: list[str]) -> list[Json]:
        loop, found = asyncio.get_running_loop(), list[Json]()
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            found += await loop.run_in_executor(self.pool, TASKS[name].run, self.bundle, part)
        return [{"index": i, **result} for i, result in enumerate(found)]
