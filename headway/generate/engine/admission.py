"""Which waiting sequences get a slot in the next step."""

from __future__ import annotations

from headway.generate.engine.sequence import Sequence
from headway.generate.engine.slot_cache import SlotCache

GATHER, PATIENCE = 16, 16
"""With kernels, prompts wait until a sixteenth of the slots is free, or for so many steps: prefilling one prompt takes
as long as prefilling a few."""


class Admission:
    """Admits prompts chunk by chunk. `padded`: prompts that are prefilled together are padded to the longest."""

    def __init__(self, cache: SlotCache, chunk: int) -> None:
        self.cache, self.chunk = cache, chunk
        self._waited = 0

    def fits(self, sequence: Sequence, batch: list[Sequence], padded: bool) -> bool:
        """Whether a prompt fits beside a batch of prompts into one chunk: always if the batch is empty."""
        lengths = [len(sequence.tokens), *(len(s.tokens) - len(self.cache.tokens[s.slot]) for s in batch)]
        size = len(lengths) * min(self.chunk, max(lengths)) if padded else sum(lengths)
        return not batch or size <= self.chunk

    def waits(self, running: int, waiting: int) -> bool:
        """Whether to wait for more free slots, so that several prompts are prefilled in one pass. Once per step."""
        free = len(self.cache) - len(self.cache.taken)
        enough = free >= len(self.cache) // GATHER or not running or self._waited >= PATIENCE
        self._waited = 0 if enough else self._waited + bool(free and waiting)
        return not enough
