"""The KV cache: keys and values of past tokens, passed as an argument and advanced by the caller.

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

GROWTH = 8
"""A cache below its capacity grows by so many slots at a time."""


def _allocated(slots: int, capacity: int) -> int:
    return min(capacity, -(-slots // GROWTH) * GROWTH)


class KVCacheLike(Protocol):
    """What a stack needs of a KV cache. In `KVCache` all rows have one length; other caches have one per row."""

    @property
    def length(self) -> int | Tensor:
        """Slot of the first new token; as a tensor (B, 1), one per row, negative where left padding comes first."""

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
    """Slots for `capacity` tokens per row, filled from the left. Padding takes slots too and is never seen."""

    keys: list[Tensor]
    """One (B, G, S, D) per layer; S grows up to the capacity."""
    values: list[Tensor]
    positions: Tensor
    """(B, S): position of the token in each slot."""
    attention_mask: Tensor
    """(B, S): false in slots of padding."""
    length: int = 0
    """Slots filled so far."""
    padded: bool = False
    memory: Sequence[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Keys and values of the encoder's output, one pair per layer. Neighbouring rows with one source share one row of
    it; every row of it belongs to equally many."""
    memory_attention_mask: Tensor | None = None
    span: int = 0
    """Slots that the current step sees."""
    sources: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    """(B,): each row's index into the memory."""

    @classmethod
    def empty(cls, layers: int, batch: int, groups: int, capacity: int, width: int, like: Tensor) -> KVCache:
        """Zeros with the device and dtype of `like`. Without padding, a token's position is its slot."""
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
        """Reserve slots for the next `steps` tokens; after all layers have written theirs, call `advance`.

        Returns the tokens' positions (B, T) and their attention mask, None if no slot of the cache is padding.
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
        more = _allocated(self.span, self.capacity) - self.keys[0].shape[2]
        self.keys = [F.pad(t, (0, 0, 0, more)) for t in self.keys]
        self.values = [F.pad(t, (0, 0, 0, more)) for t in self.values]

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values; returns all of them so far, (B, G, span, D)."""
        self.keys[layer][:, :, self.length : self.span] = k
        self.values[layer][:, :, self.length : self.span] = v
        return self.keys[layer][:, :, : self.span], self.values[layer][:, :, : self.span]

    def advance(self) -> None:
        """Count the slots of the step as used."""
        self.length = self.span

    def crop(self, length: int) -> None:
        """Keep only the first `length` slots; later tokens overwrite the others."""
        if not 0 <= length <= self.length:
            raise DataError("D001", f"cannot keep {length} of {self.length} used slots")
        self.length = self.span = length

    def reorder(self, rows: Tensor) -> KVCache:
        """The cache whose row i is row rows[i] of this one: for beams that move and requests that come and go.

        Empty slots are not copied. Nor is the encoder's memory, as long as rows only move among those of one source.
        """
        allocated = min(_allocated(self.length + 1, self.capacity), self.keys[0].shape[2] if self.keys else 0)
        sources, chosen = _regroup(self.sources[rows], len(self.memory[0][0]) if self.memory else 0)
        kept = (
            self.memory_attention_mask
            if chosen is None or self.memory_attention_mask is None
            else self.memory_attention_mask[chosen]
        )
        return KVCache(
            keys=[t[:, :, :allocated].index_select(0, rows) for t in self.keys],
            values=[t[:, :, :allocated].index_select(0, rows) for t in self.values],
            positions=self.positions[rows],
            attention_mask=self.attention_mask[rows],
            length=self.length,
            padded=self.padded,
            memory=self.memory if chosen is None else [(k[chosen], v[chosen]) for k, v in self.memory],
            memory_attention_mask=kept,
            span=self.span,
            sources=sources,
        )


def _regroup(sources: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
    """Regroup the encoder's memory of `count` rows after a reorder.

    Returns each row's index into the memory, and which rows of the memory to keep (None: all).
    """

    def places(groups: int) -> Tensor:
        return torch.arange(groups, device=sources.device).repeat_interleave(len(sources) // groups)

    if not count or (len(sources) % count == 0 and torch.equal(sources, places(count))):
        return sources, None
    groups, sizes = sources.unique_consecutive(return_counts=True)
    if bool((sizes == sizes[0]).all()):
        return places(len(groups)), groups
    return places(len(sources)), sources
