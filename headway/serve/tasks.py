"""What models do beside writing: vectors of texts, and their labels. Both in batches, in a thread of their own."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from headway.data.tokenizer import Tokenizer
from headway.model.model import Model
from headway.serve.limits import Limits
from headway.serve.problems import Problem
from headway.serve.schemas import EmbeddingRequest, RunRequest

Json = dict[str, Any]
BATCH = 16
"""Texts computed at one time; between two batches a client that has gone is noticed."""
NO_EMBEDDING = "this model has no text encoder, so it makes no embeddings"
NO_LABELS = "this model has no head that labels texts: /v1/run is for models trained to classify them"


class Labels:
    """How well each label fits, by name: probabilities; of a single label, the score itself."""

    def __init__(self, model: Model, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> list[dict[str, float]]:
        rows = [torch.tensor(encoded.ids, dtype=torch.long) for encoded in self.tokenizer.encode_batch(texts)]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        keep = torch.arange(ids.shape[1])[None] < torch.tensor([len(row) for row in rows])[:, None]
        device = next(self.model.parameters()).device
        scores = self.model.scores(self.model(ids.to(device), keep=keep.to(device)))["classify"].float()
        names = self.model.config.labels or tuple(f"LABEL_{i}" for i in range(scores.shape[1]))
        shares = scores.softmax(-1) if scores.shape[1] > 1 else scores
        return [dict(zip(names, row, strict=True)) for row in shares.tolist()]


class Tasks:
    """Answers requests one after another: two batches at one time would only take each other's memory."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: Limits,
        room: int | None,
        embed: Callable[[list[str]], Tensor] | None = None,
        labels: Labels | None = None,
    ) -> None:
        """`room` is the number of tokens the model reads; None when nothing limits it."""
        self.tokenizer, self.limits, self.room, self.embed, self.labels = tokenizer, limits, room, embed, labels
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="headway-task")

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

    async def vectors(self, asked: EmbeddingRequest, texts: list[str]) -> list[Json]:
        if self.embed is None:
            raise Problem(400, NO_EMBEDDING, "D001", "model")
        found: list[Json] = []
        async for rows in self._batches(lambda part: self.embed(part).float().cpu(), texts):  # type: ignore[misc]
            if asked.dimensions not in (None, rows.shape[1]):
                message = f"dimensions = {asked.dimensions}; this model's vectors have {rows.shape[1]}"
                raise Problem(400, message, "C003", "dimensions")
            for row in rows:
                plain = asked.encoding_format != "base64"
                value = row.tolist() if plain else base64.b64encode(row.numpy().tobytes()).decode()
                found.append({"object": "embedding", "index": len(found), "embedding": value})
        return found

    async def run(self, asked: RunRequest, texts: list[str]) -> list[Json]:
        if self.labels is None:
            raise Problem(400, NO_LABELS, "D001", "model")
        found: list[Json] = []
        async for rows in self._batches(self.labels, texts):
            for scores in rows:
                found.append({"index": len(found), "label": max(scores, key=scores.__getitem__), "scores": scores})
        return found

    async def _batches(self, work: Callable[[list[str]], Any], texts: list[str]) -> AsyncIterator[Any]:
        loop = asyncio.get_running_loop()
        for start in range(0, len(texts), BATCH):
            yield await loop.run_in_executor(self.pool, work, texts[start : start + BATCH])
