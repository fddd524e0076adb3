"""The likeliest tokens of many rows of scores. Letters: N rows, V vocabulary, K tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.generate.logits import top
from headway.generate.products import power_of_two

MOST = 32
"""Tokens of a row that are found one after the other; more are better sorted."""
BLOCK = 1024
"""Scores that are looked at side by side."""


def likeliest(scores: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids (N, K) of the best `count` tokens among those that are `allowed` (V,).

    By a kernel on a GPU, where to write out log-probabilities and to sort them takes longer than the model does.
    """
    count = min(count, scores.shape[1])
    if not scores.is_cuda or count > MOST:
        return top(scores.float().log_softmax(-1).masked_fill(~allowed, -torch.inf), count)
    return by_row(scores, count, allowed)


def by_row(scores: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    from headway.generate.beamkernels import best_of_row

    rows, vocab = scores.shape
    values = torch.empty(rows, count, device=scores.device)
    tokens = torch.empty(rows, count, dtype=torch.long, device=scores.device)
    best_of_row[(rows,)](
        scores, allowed, values, tokens, scores.stride(0), vocab,
        BEST=count, WIDE=power_of_two(count), PARTS=power_of_two(-(-vocab // BLOCK)), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return values, tokens
