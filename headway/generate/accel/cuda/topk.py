"""The likeliest tokens of many rows of scores. Letters: N rows, V vocabulary, K tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.generate.accel.cuda.ops import power_of_two
from headway.generate.sampling.logits import PART, top

MOST = 32
"""Tokens of a row that are found one after the other on a GPU; more are better sorted."""
BLOCK = 1024
"""Scores that are looked at side by side."""
NEAR = 1 << 18
"""Numbers that a CPU has at hand while it works on them."""


def likeliest(logits: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids (N, K) of the best `count` tokens among those that are `allowed` (V,).

    By a kernel on a GPU, where to write out log-probabilities and to sort them takes longer than the model does.
    """
    count = min(count, logits.shape[1])
    if logits.is_cuda and count <= MOST:
        return by_row(logits, count, allowed)
    if logits.stride(0) == 1 and logits.shape[1] >= 4 * PART * (count + int((~allowed).sum())):
        return by_column(logits.T, count, allowed)
    return top(logits.float().log_softmax(-1).masked_fill_(~allowed, -torch.inf), count)


def by_row(logits: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    from headway.generate.accel.cuda.beam_kernels import best_of_row

    rows, vocab = logits.shape
    values = torch.empty(rows, count, device=logits.device)
    tokens = torch.empty(rows, count, dtype=torch.long, device=logits.device)
    best_of_row[(rows,)](
        logits, allowed, values, tokens, logits.stride(0), vocab,
        BEST=count, WIDE=power_of_two(count), PARTS=power_of_two(-(-vocab // BLOCK)), BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return values, tokens


def by_column(logits: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The same of scores (V, N) in columns, a stretch of the vocabulary after the other while it is at hand.

    Whatever is among the best is in one of the parts that have the best maxima, or in the rest that is no whole part;
    each token that is not allowed may make a part look better than it is.
    """
    vocab, rows = logits.shape
    step = max(PART, NEAR // rows // PART * PART)
    near = torch.empty(step, rows)
    peaks, sums, maxima = [], [], []
    for stretch in logits.split(step):
        peaks.append(stretch.amax(0))
        sums.append(torch.sub(stretch, peaks[-1], out=near[: len(stretch)]).exp_().sum(0))
        maxima.append(stretch[: len(stretch) // PART * PART].view(-1, PART, rows).amax(1))
    total = (torch.stack(peaks) + torch.stack(sums).log()).logsumexp(0)
    parts = torch.cat(maxima).T.topk(count + int((~allowed).sum())).indices
    whole = (parts[:, :, None] * PART + torch.arange(PART)).flatten(1)
    tokens = torch.cat([whole, torch.arange(vocab // PART * PART, vocab).expand(rows, -1)], 1)
    values, best = logits.T.gather(1, tokens).masked_fill(~allowed[tokens], -torch.inf).topk(count)
    return values - total[:, None], tokens.gather(1, best)
