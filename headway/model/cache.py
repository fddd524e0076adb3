"""Keys and values of what a decoder has read: allocated once, an argument, advanced by the caller.

Letters: B batch, T new tokens, S slots, G key-value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import DataError

STORED = 8
"""Slots by which a cache grows that has not used its capacity."""


def _stored(slots: int, capacity: int) -> int:
    return min(capacity, -(-slots // STORED) * STORED)


class KVCacheLike(Protocol):
    """What a stack and its attention ask of a cache, whether its rows are all of one length or not."""

    @property
    def length(self) -> int | Tensor:
        """Slot of the first new token; as a tensor (B, 1), one for each row, below zero where padding leads."""

    @property
    def span(self) -> int: ...
    @property
    def positions(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor: ...
    @property
    def padded(self) -> bool: ...
    @property
    def memory(self) -> Sequence[tuple[Tensor, Tensor]]: ...
    @property
    def memory_attention_mask(self) -> Tensor | None: ...

    def reserve(self, steps: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]: ...
    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]: ...
    def advance(self) -> None: ...


@dataclass
class KVCache:
    """Slots for `capacity` tokens per row, filled from the left; padding takes slots too, and is never seen."""

    keys: list[Tensor]
    """One (B, G, S, D) per layer; S may be less than the capacity until so many are used."""
    values: list[Tensor]
    positions: Tensor
    """(B, S) of the token in each slot."""
    attention_mask: Tensor
    """(B, S), false in slots of padding."""
    length: int = 0
    """Slots filled so far."""
    padded: bool = False
    memory: Sequence[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Cross-attention: keys and values of the encoder's output, one pair per layer. Neighbouring rows share a row of
    it, as many each: those that began from one source."""
    memory_attention_mask: Tensor | None = None
    span: int = 0
    """Slots that the running step looks at."""
    sources: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    """(B,) which row of the memory each has."""

    @classmethod
    def empty(cls, layers: int, batch: int, groups: int, capacity: int, width: int, like: Tensor) -> KVCache:
        """Zeros of the device and type of `like`; without padding, a token's position is its slot."""
        shape = (batch, groups, capacity, width)
        return cls(
            keys=[like.new_zeros(shape) for _ in range(layers)],
            values=[like.new_zeros(shape) for _ in range(layers)],
            positions=torch.arange(capacity, device=like.device).repeat(batch, 1),
            attention_mask=torch.ones(batch, capacity, dtype=torch.bool, device=like.device),
            sources=torch.arange(batch, device=like.device),
        )

    @property
    def capacity(self) -> int:
        return self.attention_mask.shape[1]

    def reserve(self, steps: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Give the next `steps` tokens their slots; `advance` follows once they are written.

        Returns their positions (B, T), and which of them are real, None where all in the cache are.
        """
        if self.length + steps > self.capacity:
            raise DataError("D001", f"the cache has {self.capacity} slots, {self.length} of them in use")
        self.span = self.length + steps
        if self.keys and self.keys[0].shape[2] < self.span:
            self._grow()
        new = slice(self.length, self.span)
        self.padded = self.padded or attention_mask is not None
        if not self.padded:
            return self.positions[:, new], None
        self.attention_mask[:, new] = True if attention_mask is None else attention_mask
        before = self.attention_mask[:, : self.length].sum(-1, keepdim=True)
        self.positions[:, new] = (before + self.attention_mask[:, new].cumsum(-1) - 1).clamp(min=0)
        return self.positions[:, new], self.attention_mask[:, new]

    def _grow(self) -> None:
        more = _stored(self.span, self.capacity) - self.keys[0].shape[2]
        self.keys = [F.pad(t, (0, 0, 0, more)) for t in self.keys]
        self.values = [F.pad(t, (0, 0, 0, more)) for t in self.values]

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values; all of them up to now, (B, G, span, D)."""
        self.keys[layer][:, :, self.length : self.span] = k
        self.values[layer][:, :, self.length : self.span] = v
        return self.keys[layer][:, :, : self.span], self.values[layer][:, :, : self.span]

    def advance(self) -> None:
        """Count the step just written."""
        self.length = self.span

    def crop(self, length: int) -> None:
        """Forget all but the first `length` slots; what comes next is written over the others."""
        if not 0 <= length <= self.length:
            raise DataError("D001", f"{length} slots cannot be kept of {self.length} in use")
        self.length = self.span = length

    def reorder(self, rows: Tensor) -> KVCache:
        """The cache whose row i is this one's row rows[i]: beams move, requests come and go.

        Slots that nothing was written to are not copied, nor is what an encoder has read while rows only change
        places with others of their source.
        """
        stored = min(_stored(self.length + 1, self.capacity), self.keys[0].shape[2] if self.keys else 0)
        sources, chosen = _shared(self.sources[rows], len(self.memory[0][0]) if self.memory else 0)
        kept = (
            self.memory_attention_mask
            if chosen is None or self.memory_attention_mask is None
            else self.memory_attention_mask[chosen]
        )
        return KVCache(
            keys=[t[:, :, :stored].index_select(0, rows) for t in self.keys],
            values=[t[:, :, :stored].index_select(0, rows) for t in self.values],
            positions=self.positions[rows],
            attention_mask=self.attention_mask[rows],
            length=self.length,
            padded=self.padded,
            memory=self.memory if chosen is None else [(k[chosen], v[chosen]) for k, v in self.memory],
            memory_attention_mask=kept,
            span=self.span,
            sources=sources,
        )


def _shared(sources: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """Rows of the memory as they are to be, for rows that have `sources` of `count`: their places there, and which to
    take. None: all, as they are."""

    def places(groups: int) -> Tensor:
        return torch.arange(groups, device=sources.device).repeat_interleave(len(sources) // groups)

    if not count or (len(sources) % count == 0 and torch.equal(sources, places(count))):
        return sources, None
    groups, sizes = sources.unique_consecutive(return_counts=True)
    if bool((sizes == sizes[0]).all()):
        return places(len(groups)), groups
    return places(len(sources)), sources
