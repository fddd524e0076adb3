"""How good a language model is on a text, how sure that is, and whether another one is better."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from headway.config.recipe import DataConfig
from headway.data.batching.token_store import TokenStore
from headway.data.datasets.text import hold_out, read_corpus, tokenize_corpus
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import DataError, NotFoundError
from headway.model.model import Model
from headway.tasks.lm.training import evaluation_rows
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.recipe import Recipe, load_run_recipe
from headway.train.provenance import check_held_out

RESAMPLES = 1000
"""Resamples behind an interval."""
ROWS = 16


@dataclass(frozen=True)
class Score:
    """Mean loss and what follows from it, each with the bounds that hold 95 % of resampled texts."""

    tokens: int
    bytes: int
    loss: tuple[float, float, float]
    perplexity: tuple[float, float, float]
    bits_per_byte: tuple[float, float, float]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Losses:
    """Sums of losses and numbers of predictions, row by row of a text."""

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    bytes: int


def evaluation_text(folder: Path | None, data: str) -> tuple[str, DataConfig]:
    """The text to score on and how it is read: as given, or what the run held out (its test text, where it has one)."""
    recipe = Recipe()
    if folder is not None and (folder / "run" / "recipe.toml").exists():
        recipe = load_run_recipe(folder)
    elif not data:
        raise NotFoundError(
            "F001", "which text? this model is no run of headway's", "give one: headway eval MODEL FILE"
        )
    settings = recipe.data
    spec = data or settings.test or settings.valid
    if not spec and folder is not None:
        check_held_out(folder, recipe)
    return spec, settings


def evaluation_tokens(spec: str, data: DataConfig, tokenizer: Tokenizer) -> TokenStore:
    """Its tokens; without a spec, the part of the training text that was held out."""
    if not spec:
        return tokenize_corpus(hold_out(read_corpus(data.train, data))[1], tokenizer)
    return tokenize_corpus(read_corpus(spec, data), tokenizer)


@torch.no_grad()
def measure(model: Model, store: TokenStore, data: DataConfig) -> Losses:
    """The loss of every row that evaluation reads."""
    if model.config.kind != "decoder" or model.config.lm is None:
        raise DataError("D001", "only a model that writes text can be scored on one")
    if model.config.max_length is not None:
        length = min(data.length, model.config.max_length)
        data = replace(data, length=length, overlap=min(data.overlap, length - 1))
    device = next(model.parameters()).device
    sums, counts = [], []
    for arrays in evaluation_rows(store, data, ROWS):
        inputs, targets, segment_ids = (None if a is None else torch.from_numpy(a).to(device) for a in arrays)
        assert inputs is not None and targets is not None
        logits = model.lm(model(inputs, attention_mask=segment_ids).hidden).float()
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
        sums.append(losses.view(targets.shape).double().sum(1).cpu().numpy())
        counts.append((targets != IGNORE).sum(1).double().cpu().numpy())
    return Losses(np.concatenate(sums), np.concatenate(counts), store.byte_count)


def score(losses: Losses, seed: int = 0) -> Score:
    """The figures, with bootstrap intervals over rows."""
    total, count = losses.sums.sum(), losses.counts.sum()
    rows = np.random.default_rng(seed).integers(0, len(losses.sums), (RESAMPLES, len(losses.sums)))
    resampled = losses.sums[rows].sum(1) / losses.counts[rows].sum(1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    mean = float(total / count)
    each = float(count) / math.log(2) / losses.bytes
    three = (mean, float(low), float(high))
    return Score(
        int(count),
        losses.bytes,
        three,
        (math.exp(three[0]), math.exp(three[1]), math.exp(three[2])),
        (three[0] * each, three[1] * each, three[2] * each),
    )


def bits_saved(ours: Losses, theirs: Losses, seed: int = 0) -> tuple[float, float, float]:
    """Bits per byte that the first saves over the second, with bounds: rows are resampled in pairs."""
    if ours.sums.shape != theirs.sums.shape or ours.bytes != theirs.bytes:
        difference = theirs.sums.sum() / theirs.bytes - ours.sums.sum() / ours.bytes
        return (float(difference) / math.log(2), -math.inf, math.inf)  # other tokens, other rows: no pairs
    rows = np.random.default_rng(seed).integers(0, len(ours.sums), (RESAMPLES, len(ours.sums)))
    difference = (theirs.sums - ours.sums) * len(ours.sums) / math.log(2) / ours.bytes
    low, high = np.quantile(difference[rows].mean(1), [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)
