"""A prefix cache for one user: tokens that a prompt shares with the sequence before are not prefilled again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.generate.accel.snapshot import Snapshot
from headway.generate.engine.slot_cache import common_prefix
from headway.generate.protocol import Decoder, DecoderWrapper, device_of
from headway.model.cache import KVCache


def _grown(small: KVCache, large: KVCache) -> KVCache:
    """Copy a KV cache into a larger, empty one."""
    n = large.length = large.span = small.length
    for new, old in zip((*large.keys, *large.values), (*small.keys, *small.values), strict=True):
        new[:, :, :n] = old[:, :, :n]
    large.positions[:, :n], large.attention_mask[:, :n] = small.positions[:, :n], small.attention_mask[:, :n]
    return large


@dataclass
class PrefixState:
    """The tokens of one sequence. Its keys and values stay with the PrefixCache."""

    capacity: int
    ids: list[int]


class PrefixCache(DecoderWrapper[Decoder[Any]]):
    """A model together with the state of its last sequence. It is itself a decoder, with one row.

    Sequences may alternate: a sequence whose state is gone is prefilled again. Only a KV cache can be cropped; a
    recurrent state that has read too much starts again.
    """

    def __init__(self, model: Decoder[Any]) -> None:
        super().__init__(model)
        self.ids: list[int] = []
        """The tokens in the state."""
        self.state: Any = None
        self.capacity = 0
        self.weights: Snapshot | None = None
        """The weights that the state was computed with."""

    def refresh(self) -> bool:
        """Drop the state if the model's weights have changed. Returns whether they have. Call it before each prompt."""
        if self.weights is not None and self.weights.same(self.model):
            return False
        self.weights, self.state, self.ids = Snapshot(self.model), None, []
        return True

    def fit(self, ids: Sequence[int], capacity: int) -> int:
        """Crop and grow the state for these ids. Returns how many of them it holds: a beginning, and nothing else."""
        shared, kept = common_prefix(self.ids, ids), isinstance(self.state, KVCache)
        if self.capacity < capacity:  # twice what is needed: growing copies everything
            max_length = self.config.max_length
            self.capacity = max(capacity, 2 * capacity if max_length is None else min(2 * capacity, max_length))
            self.state = _grown(self.state, self.model.start(batch=1, capacity=self.capacity)) if kept else None
        if self.state is None or not (kept or shared == len(self.ids)):
            self.state, shared = self.model.start(batch=1, capacity=self.capacity), 0
        elif kept:
            self.state.crop(shared)
        self.ids = list(ids[:shared])
        return shared

    @torch.no_grad()
    def prefill(self, ids: Sequence[int], last: int = 1, capacity: int = 0) -> Tensor:
        """Hidden states (1, last, M) of the last tokens of a sequence. Prefills only what the state lacks."""
        shared = self.fit(ids[: len(ids) - last], max(capacity, len(ids)))
        new = torch.tensor([ids[shared:]], dtype=torch.long, device=device_of(self.model))
        hidden = self.model.extend(self.state, new)
        self.ids = list(ids)
        return hidden[:, hidden.shape[1] - last :]

    def rows(self, count: int) -> Any:
        """A state of `count` rows, each a copy of this one."""
        rows = self.model.reorder(self.state, torch.zeros(count, dtype=torch.long, device=device_of(self.model)))
        if not isinstance(self.state, KVCache):  # a KV cache was copied; other states may be gone
            self.state, self.ids = None, []
        return rows

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> PrefixState:
        assert inputs is None and batch == 1, "a prefix cache has one row, and no encoder"
        self.refresh()
        return PrefixState(capacity, [])

    def extend(self, state: PrefixState, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        state.ids += ids[0].tolist()
        return self.prefill(state.ids, ids.shape[1], state.capacity)

    def step(self, state: PrefixState, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        state.ids += ids[0].tolist()
        return self.lm(self.prefill(state.ids, 1, state.capacity)[:, -1])

    def reorder(self, state: PrefixState, /, rows: Tensor) -> PrefixState:
        assert rows.tolist() == [0]
        return state
