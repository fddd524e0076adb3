"""Language modelling: the next token, for every token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headway.data.batches import FixedPlan, Plan, TokenPlan
from headway.data.corpus import Ids, Tokens, Windows, evaluation_windows
from headway.data.order import Index, mix
from headway.data.packing import PackedRows, PaddedRows
from headway.data.store import TokenStore
from headway.errors import ConfigError
from headway.model.model import Model
from headway.recipe import DataConfig
from headway.tasks.batch import Batch, Sharing
from headway.tasks.loss import IGNORE, token_loss

EVAL_TOKENS = 1 << 14
"""Tokens that are evaluated at a time."""


@dataclass(frozen=True)
class LanguageModelling:
    """What the trainer needs to know of the task: batches, their loss, and how good the model is."""

    data: DataConfig
    seed: int
    train: TokenStore
    valid: TokenStore
    batch_tokens: int = 0
    """Tokens in a batch of sequences of like length; 0 takes a fixed number of sequences."""

    @cached_property
    def rows(self) -> Windows | PackedRows | PaddedRows:
        """The samples of an epoch."""
        data, store = self.data, self.train
        if data.rows == "stream":
            return Windows(store.ids, data.length, self.seed)
        if data.rows == "pack":
            return PackedRows(store.ids, store.starts, data.length, self.seed)
        return PaddedRows(store.ids, store.starts, data.length, self.seed, shuffle=not self.batch_tokens)

    def plan(self, batch: int) -> Plan:
        """Which samples a step takes."""
        if not self.batch_tokens:
            return FixedPlan(len(self.rows), batch)
        if not isinstance(self.rows, PaddedRows):
            raise ConfigError("C004", f'train.batch_tokens needs data.rows = "pad", not "{self.data.rows}"')
        return TokenPlan(self.rows.lengths, self.batch_tokens, self.seed)

    def batch(self, samples: Index) -> Batch:
        """The samples with these numbers."""
        inputs, targets, marks = self.rows.read(samples)
        if self.data.noise:
            inputs = with_noise(inputs, samples, self.train.ids, self.data.noise, self.seed)
        return _batch(inputs, targets, marks)

    @staticmethod
    def loss(model: Model, inputs: Tensor, targets: Tensor, marks: Tensor | None) -> Tensor:
        """Sum over the predictions that count."""
        total, _ = token_loss(model.lm, model(inputs, keep=marks).hidden, targets)
        return total

    @torch.no_grad()
    def evaluate(self, model: Model, world: Sharing) -> dict[str, float]:
        """How well the model knows the validation text."""
        return evaluate(model, self.valid, self.data, world)


@torch.no_grad()
def evaluate(model: Model, store: TokenStore, data: DataConfig, world: Sharing) -> dict[str, float]:
    """Mean loss a token over a whole text, its exponential, and bits per byte, which compare across tokenizers."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0.0
    for batch in _evaluation(store, data, world):
        part = LanguageModelling.loss(model, *batch.to(world.device))  # type: ignore[arg-type]
        total, count = total + float(part), count + batch.count
    model.train(was_training)
    total, count = world.sum(total, count)
    mean = total / count
    bits = total / math.log(2) / store.byte_count
    return {"valid": mean, "perplexity": math.exp(min(mean, 700.0)), "bits_per_byte": bits}


def _evaluation(store: TokenStore, data: DataConfig, world: Sharing) -> Iterator[Batch]:
    """Every prediction once, the rows of each batch shared out; all processes make as many batches."""
    for inputs, targets, marks in evaluation_rows(store, data, max(1, EVAL_TOKENS // data.length) * world.size):
        mine = slice(world.rank, None, world.size)
        if len(inputs) <= world.rank:  # too few rows: this process reads one that counts for nothing
            mine, targets = slice(0, 1), np.full_like(targets, IGNORE)
        yield _batch(inputs[mine], targets[mine], None if marks is None else marks[mine])


def evaluation_rows(store: TokenStore, data: DataConfig, size: int) -> Iterator[tuple[Ids, Ids, Ids | None]]:
    """All of a text, some rows at a time."""
    if data.rows == "stream":
        inputs, targets = evaluation_windows(store.ids, data.length, IGNORE, data.overlap)
        for at in range(0, len(inputs), size):
            yield inputs[at : at + size], targets[at : at + size], None
        return
    rows = PackedRows(store.ids, store.starts, data.length, seed=0)  # none of a long document is left out
    for at in range(0, len(rows), size):
        yield rows.read(np.arange(at, min(at + size, len(rows))))


def _batch(inputs: Ids, targets: Ids, marks: Ids | None) -> Batch:
    arrays = (inputs, targets, marks)
    tensors = tuple(None if a is None else torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)
    return Batch(tensors, int((targets != IGNORE).sum()))


def with_noise(inputs: Ids, samples: Index, ids: Tokens, share: float, seed: int) -> Ids:
    """Inputs with some tokens drawn anew from the text: a pure function of the sample, as its order is."""
    place = np.arange(inputs.shape[1], dtype=np.uint64)
    cell = (samples[:, None].astype(np.uint64) << np.uint64(24)) | place
    dice = mix(cell ^ mix(np.uint64(seed)))
    chance = (dice >> np.uint64(11)).astype(np.float64) / 2**53
    other = ids[(mix(dice) % np.uint64(len(ids))).astype(np.int64)]
    return np.where(chance < share, other, inputs).astype(np.int64)
