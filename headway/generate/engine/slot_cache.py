"""A KV cache of slots, one for each sequence, allocated once: slots × capacity.

Sequences come and go without moving the others. A slot keeps its keys and values until it is needed, so a sequence that
begins alike is not prefilled from its beginning.
Letters: B slots of a step, T new tokens, S columns that a step attends to, G key-value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headway.errors import DataError, MemoryOrDiskError
from headway.model.cache import KVCache
from headway.model.model import Model


class SlotCache:
    """The slots: their tokens, which are taken, and when each was freed."""

    def __init__(self, cache: KVCache) -> None:
        """`cache` is empty, with a row for each slot, and one column more than sequences may have: for padding."""
        if cache.memory:
            raise DataError("D001", "slots are for decoders alone: this model has an encoder")
        self.keys, self.values = cache.keys, cache.values
        self.capacity = cache.capacity - 1
        self.columns = torch.arange(self.capacity, device=cache.attention_mask.device)
        self.tokens: list[list[int]] = [[] for _ in range(len(cache.attention_mask))]
        """The tokens whose keys and values are in each slot."""
        self.taken: set[int] = set()
        self.freed = [0] * len(self.tokens)
        """When each slot was freed last, as a count of such events."""

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, tokens: Sequence[int]) -> tuple[int, int] | None:
        """A slot for a sequence, and how many of its tokens are in it already; None if all slots are taken.

        These are the longest beginning that a slot shares with the sequence, except its last token, whose logits are
        needed. They are copied to the free slot that was freed longest ago; or their own slot is used, if it is free
        and fewer cached tokens are lost that way.
        """
        free = [slot for slot in range(len(self)) if slot not in self.taken]
        if not free:
            return None
        shared = [min(common_prefix(held, tokens), len(tokens) - 1) for held in self.tokens]
        best = max(range(len(self)), key=lambda s: (shared[s], s not in self.taken, -len(self.tokens[s])))
        count, oldest = shared[best], min(free, key=lambda s: (len(self.tokens[s]) > 0, self.freed[s]))
        if not count:
            best = oldest
        elif best in self.taken or len(self.tokens[best]) - count > len(self.tokens[oldest]):
            self._copy(best, oldest, count)
            best = oldest
        del self.tokens[best][count:]
        self.taken.add(best)
        return best, count

    def free(self, slot: int) -> None:
        """Free a slot. It keeps its keys and values until it is needed."""
        self.taken.remove(slot)
        self.freed[slot] = 1 + max(self.freed)

    def cut(self, slot: int, count: int) -> None:
        """Keep only the first `count` tokens of a slot."""
        del self.tokens[slot][count:]

    def clear(self, slot: int) -> None:
        """Zero a slot after a failure: masked columns are multiplied by zero, and 0 · NaN is NaN."""
        self.cut(slot, 0)
        for part in (*self.keys, *self.values):
            part[slot].zero_()

    def gather(self, size: int) -> tuple[range, dict[int, int]]:
        """Move all taken slots into `size` neighbours. Returns these, and the moves (from → to)."""
        starts = range(len(self) - size + 1)
        first = max(starts, key=lambda start: len(self.taken & {*range(start, start + size)}))
        here = range(first, first + size)
        places = sorted({*here} - self.taken, key=lambda s: (len(self.tokens[s]) > 0, self.freed[s]))
        moves = dict(zip(sorted(self.taken - {*here}), places, strict=False))
        for source, target in moves.items():
            self._copy(source, target, len(self.tokens[source]))
            self.taken.add(target)
            self.free(source)
        return here, moves

    def step(self, new: Mapping[int, Sequence[int]], slots: Sequence[int] | None = None) -> SlotStep:
        """A forward pass with new tokens by slot. It is computed for `slots`, which may be more."""
        slots = list(new) if slots is None else slots
        longest = max(len(tokens) for tokens in new.values())
        needed = max(len(self.tokens[slot]) + len(tokens) for slot, tokens in new.items())
        if needed > self.capacity:
            raise DataError("D001", f"a sequence of {needed} tokens does not fit: a slot has {self.capacity} columns")
        rows, device = [new.get(slot, ()) for slot in slots], self.columns.device
        ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
        sizes = [
            (len(self.tokens[slot]) if slot in new else 0, len(row)) for slot, row in zip(slots, rows, strict=True)
        ]
        held, count = torch.tensor(sizes, device=device).split(1, 1)
        return SlotStep(self, slots, ids, held, count, new=new, span=needed)

    def _copy(self, source: int, target: int, count: int) -> None:
        """Copy the first tokens of one slot to another, which may be the same."""
        for part in (*self.keys, *self.values):
            part[target, :, :count] = part[source, :, :count]
        self.tokens[target] = self.tokens[source][:count]


class SlotStep:
    """The KV cache of one forward pass, for `Model.extend`: some slots, with new tokens padded on the left.

    Slots without new tokens are computed too and do not change: padding is written to the last column, which is always
    masked, and attends to one column of its own slot.
    """

    padded = True
    memory: Sequence[tuple[Tensor, Tensor]] = ()
    memory_attention_mask: Tensor | None = None

    def __init__(
        self,
        cache: SlotCache,
        slots: Sequence[int],
        ids: Tensor,
        held: Tensor,
        count: Tensor,
        *,
        new: Mapping[int, Sequence[int]],
        span: int,
    ) -> None:
        """`ids` (B, T) are the new tokens; `held` and `count` (B, 1) the numbers of old and new tokens in each slot."""
        self.cache, self.ids, self.new, self.span = cache, ids, new, span
        steps = torch.arange(ids.shape[1], device=ids.device)
        self.length = held + count - ids.shape[1]
        """(B, 1): column of the first of T tokens; below zero for padding."""
        self.real = steps >= ids.shape[1] - count  # B T
        self.place_of = self.length + steps  # B T
        self.target = self.place_of.where(self.real, cache.capacity)
        self.positions = cache.columns.expand(len(ids), -1)
        self.attention_mask = cache.columns < held + count  # B columns
        self.index = torch.tensor(list(slots), device=ids.device)[:, None]
        neighbours = list(slots) == list(range(slots[0], slots[0] + len(slots)))
        self.rows = slice(slots[0], slots[0] + len(slots)) if neighbours else self.index[:, 0]

    def reserve(self, steps: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Positions of the new tokens (B, T), and their padding mask."""
        assert steps == self.ids.shape[1] and attention_mask is None, "the tokens of a step are fixed"
        return self.place_of.clamp(min=0), self.real

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store one layer's new keys and values. Returns all of them (B, G, S, D), no copy if slots are neighbours."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.index, :, self.target] = k.transpose(1, 2)
        values[self.index, :, self.target] = v.transpose(1, 2)
        return keys[:, :, : self.span][self.rows], values[:, :, : self.span][self.rows]

    def advance(self) -> None:
        """Record the new tokens."""
        for slot, tokens in self.new.items():
            self.cache.tokens[slot] += tokens


def allocate(model: Model, slots: int, capacity: int) -> SlotCache:
    """An empty slot cache for a model."""
    try:
        return SlotCache(model.start(batch=slots, capacity=capacity + 1))
    except RuntimeError as error:
        raise MemoryOrDiskError(
            "M001", f"there is no memory for {slots} slots of {capacity} tokens", "take fewer slots or a lower capacity"
        ) from error


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens that two sequences share at their beginning."""
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[i] != b[i]), shorter)
