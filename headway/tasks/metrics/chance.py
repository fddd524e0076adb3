"""What a model scores that ignores its input: the frequencies of tokens or labels are all it knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.data.datasets.labeled import Kind

MOST_TOKENS = 1_000_000
"""Tokens that are counted of a corpus: the frequencies of more would hardly differ."""


def unigram_loss(train: Sequence[int] | NDArray[Any], valid: Sequence[int] | NDArray[Any], vocab: int) -> float:
    """The loss per token of `valid` by the frequencies in `train`; every token counts once more than it was seen."""
    counts, held_out = (np.bincount(np.asarray(ids[:MOST_TOKENS]), minlength=vocab) for ids in (train, valid))
    log_probs = np.log((counts + 1) / (counts.sum() + len(counts)))
    return float(-(held_out[: len(counts)] * log_probs[: len(held_out)]).sum() / max(1, held_out.sum()))


def constant_logits(kind: Kind, truth: NDArray[Any], labels: int) -> NDArray[np.float64]:
    """The logits that give every text the shares of the labels (L,); for numbers, their mean (1,)."""
    if kind == "regression":
        return np.array([truth.mean()])
    if kind == "single":
        return np.log((np.bincount(truth.astype(np.int64), minlength=labels) + 1) / (len(truth) + labels))
    share = (truth.sum(0) + 1) / (len(truth) + 2)
    return np.asarray(np.log(share / (1 - share)))
