"""What fast decoding is asked for, whichever device does it. Letters: B texts, V vocabulary, S columns of the cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from weakref import ref

import torch
from torch import Tensor

from headway.generate.accel.snapshot import Snapshot
from headway.model.model import Model
from headway.model.positions import rotary_angles


class FastDecoder(ABC):
    """A cache (B, key-value heads, S, width of a head) by layer, whose rows hold one text each, and what reads into it.

    The last column is nobody's: what only fills up a pass goes there.
    """

    runs_ahead: ClassVar[bool]
    """Whether to begin a step before anybody has looked at its tokens: a device does it while we look."""
    argmax: Tensor
    """(B,): the best token of each row after a step, -1 where scores are no numbers: for those who ask for no other."""

    def __init__(self, model: Model, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        stack = model.config.decoder
        assert stack is not None
        self.owner, self.stack = ref(model), stack
        self._attach(model)
        self.keys, self.values = keys, values
        self.rows, _, self.columns, self.width = keys[0].shape
        self.scale = stack.scale or self.width**-0.5
        device = keys[0].device
        self.ids = torch.zeros(self.rows, dtype=torch.long, device=device)
        """The next token of each text …"""
        self.end = torch.zeros(self.rows, dtype=torch.int32, device=device)
        """… and the column it goes to; a step moves them on by one. In a row that nobody uses, that does no harm: what
        is written there is beyond the text that the row has, and at last in the last column."""
        self.held: list[list[int]] = [[] for _ in range(self.rows)]
        """The tokens that each row had when it was last used: a text that begins like them need not be read anew."""
        self.angles: tuple[Tensor, ...] | None = None
        """Cosines and sines (S, half a head's width)."""
        if stack.rope is not None:
            places = torch.arange(self.columns, device=device)[None]
            self.angles = tuple(a[0, 0].contiguous() for a in rotary_angles(stack.rope, self.width, places))

    def _attach(self, model: Model) -> None:
        self.weights = Snapshot(model)
        self.front, self.lm = model.target, model.lm
        self.blocks: list[Any] = list(model.decoder.blocks)
        self.norm: Any = model.decoder.norm

    def suits(self, columns: int) -> bool:
        """Whether it has room for texts of such length, and not far too much."""
        return columns <= self.columns <= 2 * columns + 1024

    def knows(self, model: Model, rows: int) -> bool:
        """Whether it has so many rows and reads the weights where the model has them now."""
        return self.rows == rows and self.weights.placed(model)

    def renew(self, model: Model) -> None:
        """Forget what came from weights that the model does not have any more."""
        if not self.weights.same(model):
            self._attach(model)
            self.held = [[] for _ in range(self.rows)]
            self.forget()

    @abstractmethod
    def forget(self) -> None:
        """Drop all that was copied or recorded from weights."""

    def learn(self, other: FastDecoder) -> None:
        """All that another one has read, which has less room."""
        for own, old in zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True):
            own[:, :, : old.shape[2]] = old
        self.held = other.held

    @abstractmethod
    def prefill(self, texts: Mapping[int, tuple[int, Sequence[int]]]) -> Tensor:
        """Scores (texts, V) after new tokens of some rows, each given as (older tokens, new ones)."""

    @abstractmethod
    def step(self, rows: Sequence[int] | None = None) -> Tensor:
        """Scores (B, V) after `ids`, at least those of `rows`; the next step takes the place of them."""
