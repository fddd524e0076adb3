"""From scores to choices: pure functions of tensors (B, V)."""

from __future__ import annotations

import torch
from torch import Tensor


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """All but the k best become impossible."""
    if k <= 0 or k >= scores.shape[-1]:
        return scores
    worst = scores.topk(k).values[..., -1:]
    return scores.masked_fill(scores < worst, -torch.inf)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """The fewest tokens whose probabilities sum to at least p stay possible (Holtzman et al. 2020)."""
    if p >= 1.0:
        return scores
    ordered, order = scores.sort(descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    return scores.masked_fill((before >= p).gather(-1, order.argsort(-1)), -torch.inf)


def choose(scores: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """A token per row (B,): the best at temperature 0, otherwise drawn."""
    if temperature <= 0:
        return scores.argmax(-1)
    probabilities = (scores.float() / temperature).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]
