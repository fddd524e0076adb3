"""The slow twin of the fast decoder: the same rows and columns, through `Transformer.step`, on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.generate.engine.slot_cache import SlotCache
from headway.model.cache import KVCache
from headway.model.model import Transformer


class Twin:
    runs_ahead = True

    def __init__(self, model: Transformer, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        rows, _, columns, _ = keys[0].shape
        device = keys[0].device
        positions = torch.zeros(rows, columns, dtype=torch.long, device=device)
        self.model = model
        self.slots = SlotCache(KVCache(list(keys), list(values), positions, positions.bool()))
        self.ids = torch.zeros(rows, dtype=torch.long, device=device)
        self.end = torch.zeros(rows, dtype=torch.int32, device=device)
        self.argmax = self.ids.clone()
        self.held: list[list[int]] = [[] for _ in range(rows)]
        self.logits: Tensor | None = None

    @torch.no_grad()
    def prefill(self, texts: Mapping[int, tuple[int, Sequence[int]]]) -> Tensor:
        found = []
        for row, (held, new) in texts.items():
            self.slots.tokens[row] = [0] * held
            step = self.slots.step({row: list(new)})
            found.append(self.model.step(step, step.ids)[0])
        return torch.stack(found)

    @torch.no_grad()
    def step(self, rows: Sequence[int] | None = None) -> Tensor:
        """Into the same tensor each time: who still wants the last scores must have copied them."""
        ends, room = self.end.tolist(), self.slots.capacity
        self.slots.tokens = [[0] * end for end in ends]
        used = {row: [token] for row, token in enumerate(self.ids.tolist()) if ends[row] < room}
        step = self.slots.step(used, range(len(ends)))
        logits = self.model.step(step, step.ids)
        if self.logits is None:
            self.logits = logits.clone()
        self.logits.copy_(logits)
        self.argmax.copy_(logits.argmax(-1).where(~logits.isnan().any(-1), -1))
        self.end.add_(1).clamp_(max=room)
        return self.logits


def acquire(model: Transformer, rows: int, columns: int) -> Any:
    cache = model.start(batch=rows, capacity=columns + 1)
    return Twin(model, cache.keys, cache.values)
