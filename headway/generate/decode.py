"""Decoding one token at a time, through start and step alone: whatever implements them can be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from headway.generate.logits import choose, keep_top_k, keep_top_p
from headway.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None


@torch.no_grad()
def generate(model: Model, prompt: Sequence[int], tokens: int, sampling: Sampling) -> Iterator[int]:
    """Up to `tokens` new ids after the prompt. Past the longest text the model knows, it goes on from the last half."""
    device = next(model.parameters()).device
    generator = None
    if sampling.seed is not None:
        generator = torch.Generator(device=device).manual_seed(sampling.seed)
    room = model.config.max_length or len(prompt) + tokens
    text = list(prompt)[-room:]
    cache, new = None, text
    for _ in range(tokens):
        if cache is None or cache.length + len(new) > room:
            new = text[-room:] if cache is None else text[-max(1, room // 2) :]
            cache = model.start(batch=1, capacity=room)
        scores = model.step(cache, torch.tensor([new], device=device))
        scores = keep_top_p(keep_top_k(scores, sampling.top_k), sampling.top_p)
        chosen = int(choose(scores, sampling.temperature, generator))
        yield chosen
        text.append(chosen)
        new = [chosen]
