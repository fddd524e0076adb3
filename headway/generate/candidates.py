"""The likeliest tokens of many rows of scores. Letters: N rows, V vocabulary, K tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.generate.logits import top

MOST = 32
"""Tokens of a row that are found one after the other; more are better sorted."""
BLOCK = 1024
"""Scores that one program looks at."""


def likeliest(scores: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids (N, K) of the best `count` tokens among those that are `allowed` (V,).

    In two rounds on a GPU, where to write out log-probabilities and to sort them takes longer than the model does.
    """
    count = min(count, scores.shape[1])
    if not scores.is_cuda or count > MOST:
        return top(scores.float().log_softmax(-1).masked_fill(~allowed, -torch.inf), count)
    return in_parts(scores, count, allowed)


def in_parts(scores: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The best of each part of a row, and then the best of these."""
    from headway.generate.kernels import best_of_part

    rows, vocab = scores.shape
    parts = -(-vocab // BLOCK)
    values = torch.empty(rows, parts * count, device=scores.device)
    tokens = torch.empty(rows, parts * count, dtype=torch.long, device=scores.device)
    peaks, sums = (torch.empty(rows, parts, device=scores.device) for _ in range(2))
    best_of_part[(rows, parts)](
        scores, allowed, values, tokens, peaks, sums, scores.stride(0), vocab, PARTS=parts, BEST=count, BLOCK=BLOCK,
        num_warps=4,
    )  # fmt: skip
    whole = (peaks + sums.log()).logsumexp(-1, keepdim=True)
    best, places = values.topk(count)
    return best - whole, tokens.gather(1, places)
