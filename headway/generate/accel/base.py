"""The interface of accelerated decoders. Letters: B rows, V vocabulary, S columns of the KV cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from weakref import ref

import torch
from torch import Tensor

from headway.generate.accel.snapshot import Snapshot
from headway.model.model import Transformer
from headway.model.positions import rotary_angles


class FastDecoder(ABC):
    """A KV cache (B, key-value heads, S, width of a head) by layer, one sequence per row, and the kernels over it.

    The last column belongs to no sequence: padding is written there.
    """

    runs_ahead: ClassVar[bool]
    """Whether a step can begin before the CPU has seen its tokens."""
    argmax: Tensor
    """(B,): the most probable token of each row after a step, -1 if logits are NaN."""

    def __init__(self, model: Transformer, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        stack = model.config.decoder
        assert stack is not None
        self.owner, self.stack = ref(model), stack
        self._attach(model)
        self.keys, self.values = keys, values
        self.rows, _, self.columns, self.width = keys[0].shape
        self.scale = stack.scale or self.width**-0.5
        device = keys[0].device
        self.ids = torch.zeros(self.rows, dtype=torch.long, device=device)
        """The next token of each sequence …"""
        self.end = torch.zeros(self.rows, dtype=torch.int32, device=device)
        """… and its column. A step advances the columns by one, also in unused rows: there it writes behind the tokens
        that the row holds, and finally to the last column."""
        self.held: list[list[int]] = [[] for _ in range(self.rows)]
        """The tokens whose keys and values each row holds, for sequences that begin alike."""
        self.angles: tuple[Tensor, ...] | None = None
        """Cosines and sines (S, half a head's width)."""
        if stack.rope is not None:
            places = torch.arange(self.columns, device=device)[None]
            self.angles = tuple(a[0, 0].contiguous() for a in rotary_angles(stack.rope, self.width, places))

    def _attach(self, model: Transformer) -> None:
        self.weights = Snapshot(model)
        self.front, self.lm = model.target, model.lm
        self.blocks: list[Any] = list(model.decoder.blocks)
        self.norm: Any = model.decoder.norm

    def suits(self, columns: int) -> bool:
        """Whether the KV cache is long enough for `columns` tokens, and not far too long."""
        return columns <= self.columns <= 2 * columns + 1024

    def knows(self, model: Transformer, rows: int) -> bool:
        """Whether the decoder has `rows` rows and uses the memory where the model's weights are now."""
        return self.rows == rows and self.weights.placed(model)

    def renew(self, model: Transformer) -> None:
        """Drop keys, values and copies if the model's weights have changed."""
        if not self.weights.same(model):
            self._attach(model)
            self.held = [[] for _ in range(self.rows)]
            self.forget()

    @abstractmethod
    def forget(self) -> None:
        """Drop everything that was copied or captured from weights."""

    def learn(self, other: FastDecoder) -> None:
        """Copy the KV cache of another decoder, which has fewer columns."""
        for own, old in zip((*self.keys, *self.values), (*other.keys, *other.values), strict=True):
            own[:, :, : old.shape[2]] = old
        self.held = other.held

    @abstractmethod
    def prefill(self, new: Mapping[int, tuple[int, Sequence[int]]]) -> Tensor:
        """Logits (B, V) after new tokens of some rows: row → (number of tokens it holds, new tokens)."""

    @abstractmethod
    def step(self, rows: Sequence[int] | None = None) -> Tensor:
        """Logits (B, V) after `ids`, at least those of `rows`. The next step overwrites them."""
