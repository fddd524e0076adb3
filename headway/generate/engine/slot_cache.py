"""Keys and values of many texts, each in a slot of its own, as long as it is: allocated once, slots × capacity.

A slot holds one text and has a column for each of its tokens. Texts come and go without moving the others, and what a
slot holds stays until the slot is needed: a text that begins like it need not be read from its beginning.
Letters: B slots of a step, T new tokens, S columns a step looks at, G key-value heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headway.errors import DataError
from headway.model.cache import KVCache


class SlotCache:
    """What each slot holds, which are taken, and which were left longest ago."""

    def __init__(self, memory: KVCache) -> None:
        """`memory` is an empty cache with a row for each slot, and a column more than texts may have: for padding."""
        if memory.memory:
            raise DataError("D001", "a text in a slot has no encoder to look at")
        self.keys, self.values = memory.keys, memory.values
        self.capacity = memory.capacity - 1
        self.columns = torch.arange(self.capacity, device=memory.attention_mask.device)
        self.tokens: list[list[int]] = [[] for _ in range(len(memory.attention_mask))]
        """The tokens whose keys and values are in each slot."""
        self.taken: set[int] = set()
        self.left = [0] * len(self.tokens)
        """When each was left last, as a count of such events."""

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, text: Sequence[int]) -> tuple[int, int] | None:
        """A slot for this text, and how many of its tokens are in it already; None if all slots are taken.

        They are the longest beginning that a slot has in common with the text, but never the whole of it: the last
        token must be read to know what follows. Used is the free slot that was left longest ago, to which they are
        copied; or the slot where they are found, if it is free and fewer tokens are lost by that.
        """
        free = [slot for slot in range(len(self)) if slot not in self.taken]
        if not free:
            return None
        shared = [min(common_prefix(held, text), len(text) - 1) for held in self.tokens]
        best = max(range(len(self)), key=lambda s: (shared[s], s not in self.taken, -len(self.tokens[s])))
        count, oldest = shared[best], min(free, key=lambda s: (len(self.tokens[s]) > 0, self.left[s]))
        if not count:
            best = oldest
        elif best in self.taken or len(self.tokens[best]) - count > len(self.tokens[oldest]):
            self._copy(best, oldest, count)
            best = oldest
        del self.tokens[best][count:]
        self.taken.add(best)
        return best, count

    def free(self, slot: int) -> None:
        """Its text is done; what it holds stays until the slot is needed."""
        self.taken.remove(slot)
        self.left[slot] = 1 + max(self.left)

    def cut(self, slot: int, count: int) -> None:
        """Keep the first tokens of a slot only."""
        del self.tokens[slot][count:]

    def clear(self, slot: int) -> None:
        """Wipe a slot whose text went wrong. Columns out of sight count too, times zero, and 0 · NaN is NaN."""
        self.cut(slot, 0)
        for part in (*self.keys, *self.values):
            part[slot].zero_()

    def gather(self, size: int) -> tuple[range, dict[int, int]]:
        """`size` neighbours that hold all taken slots, and the moves (from → to) that brought them there."""
        starts = range(len(self) - size + 1)
        first = max(starts, key=lambda start: len(self.taken & {*range(start, start + size)}))
        here = range(first, first + size)
        places = sorted({*here} - self.taken, key=lambda s: (len(self.tokens[s]) > 0, self.left[s]))
        moves = dict(zip(sorted(self.taken - {*here}), places, strict=False))
        for source, target in moves.items():
            self._copy(source, target, len(self.tokens[source]))
            self.taken.add(target)
            self.free(source)
        return here, moves

    def step(self, new: Mapping[int, Sequence[int]], slots: Sequence[int] | None = None) -> SlotStep:
        """A step that reads these tokens, by slot. It is computed for `slots`, which may be more."""
        slots = list(new) if slots is None else slots
        longest = max(len(tokens) for tokens in new.values())
        needed = max(len(self.tokens[slot]) + len(tokens) for slot, tokens in new.items())
        if needed > self.capacity:
            raise DataError("D001", f"a text of {needed} tokens, a slot has {self.capacity} columns")
        rows, device = [new.get(slot, ()) for slot in slots], self.columns.device
        ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
        sizes = [
            (len(self.tokens[slot]) if slot in new else 0, len(row)) for slot, row in zip(slots, rows, strict=True)
        ]
        held, count = torch.tensor(sizes, device=device).split(1, 1)
        return SlotStep(self, slots, ids, held, count, new=new, span=needed)

    def _copy(self, source: int, target: int, count: int) -> None:
        """The first tokens of one slot to another, which may be the same."""
        for part in (*self.keys, *self.values):
            part[target, :, :count] = part[source, :, :count]
        self.tokens[target] = self.tokens[source][:count]


class SlotStep:
    """The cache of one step, for `Model.extend`: some of the slots, with new tokens that are padded on the left.

    Slots without new tokens are computed all the same and keep what they have: padding is written to the last column,
    where nobody looks, and looks itself at one column of its own slot.
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
        """`ids` (B, T) are the new tokens; `held` and `count` (B, 1) how many each slot has of old ones and of new."""
        self.cache, self.ids, self.new, self.span = cache, ids, new, span
        steps = torch.arange(ids.shape[1], device=ids.device)
        self.length = held + count - ids.shape[1]
        """(B, 1): column of the first of T tokens; where that is padding, it may be below zero."""
        self.real = steps >= ids.shape[1] - count  # B T
        self.place_of = self.length + steps  # B T
        self.target = self.place_of.where(self.real, cache.capacity)
        self.positions = cache.columns.expand(len(ids), -1)
        self.attention_mask = cache.columns < held + count  # B columns
        self.index = torch.tensor(list(slots), device=ids.device)[:, None]
        neighbours = list(slots) == list(range(slots[0], slots[0] + len(slots)))
        self.rows = slice(slots[0], slots[0] + len(slots)) if neighbours else self.index[:, 0]

    def reserve(self, steps: int, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Positions of the new tokens (B, T), and which of them are real."""
        assert steps == self.ids.shape[1] and attention_mask is None, "a step knows its tokens"
        return self.place_of.clamp(min=0), self.real

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values; all of them up to now, (B, G, S, D): not copied, if neighbours."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.index, :, self.target] = k.transpose(1, 2)
        values[self.index, :, self.target] = v.transpose(1, 2)
        return keys[:, :, : self.span][self.rows], values[:, :, : self.span][self.rows]

    def advance(self) -> None:
        """The new tokens are read."""
        for slot, tokens in self.new.items():
            self.cache.tokens[slot] += tokens


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[i] != b[i]), shorter)
