"""Perplexity and bits per byte of a language model on a text, with bootstrap intervals; comparison of two models."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.config.recipe import DataConfig
from headway.data.batching.token_store import TokenStore
from headway.data.datasets.text import hold_out, read_corpus, tokenize_corpus
from headway.data.files.lines import read_as
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError, NotFoundError
from headway.model.model import Model
from headway.tasks.lm.training import evaluation_rows
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.metrics.bootstrap import Interval, interval, mean_interval
from headway.tasks.recipe import Recipe, load_run_recipe
from headway.train.provenance import check_held_out

ROWS = 16


@dataclass(frozen=True)
class Score:
    """Loss, perplexity and bits per byte, each with a 95 % confidence interval."""

    tokens: int
    bytes: int
    loss: Interval
    perplexity: Interval
    bits_per_byte: Interval

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Losses:
    """The sum of losses and the number of predictions of each row of a text."""

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    bytes: int


def evaluation_text(folder: Path | None, data: str) -> tuple[str, DataConfig]:
    """The text and the data settings: as given, else the run's test data, validation data or held-out part."""
    recipe = Recipe()
    if folder is not None and (folder / "run" / "recipe.toml").exists():
        recipe = load_run_recipe(folder)
    elif not data:
        raise NotFoundError(
            "F001", "no text given, and the model is not a run of headway", "give one: headway eval MODEL FILE"
        )
    settings = recipe.data
    spec = data or settings.test or settings.valid
    if not spec and folder is not None:
        check_held_out(folder, recipe)
    return spec, settings


def evaluation_tokens(spec: str, data: DataConfig, tokenizer: Tokenizer) -> TokenStore:
    """The tokens of the text; without a spec, of the held-out part of the training text."""
    with read_as(data.encoding):
        if not spec:
            return tokenize_corpus(hold_out(read_corpus(data.train, data))[1], tokenizer)
        return tokenize_corpus(read_corpus(spec, data), tokenizer)


@torch.no_grad()
def measure(model: Model, store: TokenStore, data: DataConfig) -> Losses:
    """The losses of all evaluation rows."""
    if model.config.kind != "decoder" or model.config.lm is None:
        raise DataError("D001", "perplexity needs a language model: this model does not generate text")
    if model.config.max_length is not None:
        length = min(data.length, model.config.max_length)
        data = replace(data, length=length, overlap=min(data.overlap, length - 1))
    if data.rows == "carry" and not model.first_carry(1):  # another model beside a recurrent one
        data = replace(data, rows="stream")
    device = next(model.parameters()).device
    sums, counts = [], []
    carry: tuple[Tensor, ...] = ()
    for arrays in evaluation_rows(store, data, ROWS):
        inputs, targets, segment_ids = (None if a is None else torch.from_numpy(a).to(device) for a in arrays)
        assert inputs is not None and targets is not None
        output, after = model.read_on(inputs, segment_ids, carry)
        carry = after if data.rows == "carry" else ()
        logits = model.lm(output.hidden).float()
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
        sums.append(losses.view(targets.shape).double().sum(1).cpu().numpy())
        counts.append((targets != IGNORE).sum(1).double().cpu().numpy())
    return Losses(np.concatenate(sums), np.concatenate(counts), store.byte_count)


def score(losses: Losses) -> Score:
    """The metrics, with bootstrap intervals over rows."""
    sums, counts = losses.sums, losses.counts
    loss = interval(lambda rows: float(sums[rows].sum() / counts[rows].sum()), len(sums))
    per_byte = float(counts.sum()) / math.log(2) / losses.bytes
    perplexity, bits = ((f(loss[0]), f(loss[1]), f(loss[2])) for f in (math.exp, lambda x: x * per_byte))
    return Score(int(counts.sum()), losses.bytes, loss, perplexity, bits)


def bits_saved(ours: Losses, theirs: Losses) -> Interval:
    """Bits per byte that the first model saves over the second, with an interval from a paired bootstrap over rows."""
    if ours.sums.shape != theirs.sums.shape or ours.bytes != theirs.bytes:
        difference = theirs.sums.sum() / theirs.bytes - ours.sums.sum() / ours.bytes
        return (float(difference) / math.log(2), -math.inf, math.inf)  # different tokens: rows cannot be paired
    return mean_interval((theirs.sums - ours.sums) * len(ours.sums) / math.log(2) / ours.bytes)
