"""The most probable tokens of many rows of logits. Letters: N rows, V vocabulary, K tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.generate.accel.cuda.ops import power_of_two
from headway.generate.sampling.logits import top

MAX_TOKENS = 32
"""Tokens of a row that the kernel finds one after the other; more are better sorted."""
BLOCK = 1024
"""Logits that a program looks at together."""


def likeliest(logits: Tensor, count: int, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids (N, K) of the `count` most probable tokens among those that are `allowed` (V,).

    On a GPU by a kernel: writing out all log-probabilities and sorting them takes longer than the model does.
    """
    count = min(count, logits.shape[1])
    if logits.is_cuda and count <= MAX_TOKENS:
        return by_row(logits, count, allowed)
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
