"""What tasks and the trainer hand each other: a batch, and how work is shared out among processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Samples as tensors, on the CPU as they are made, and how many predictions of them count."""

    tensors: tuple[Tensor | None, ...]
    count: float
    """What their summed loss is divided by: a whole number, unless predictions have weights."""
    read: int | None = None
    """Real tokens, where not every one of them is a prediction that counts."""

    @property
    def tokens(self) -> int:
        return int(self.count) if self.read is None else self.read

    def to(self, device: torch.device) -> tuple[Tensor | None, ...]:
        """The tensors there; copied beside the computation where they are pinned."""
        return tuple(None if t is None else t.to(device, non_blocking=True) for t in self.tensors)

    def pinned(self) -> Batch:
        """In memory that a GPU reads by itself."""
        return replace(self, tensors=tuple(None if t is None else t.pin_memory() for t in self.tensors))


class ProcessGroup(Protocol):
    """This process among those that work together."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    def sum(self, *values: float) -> list[float]: ...
