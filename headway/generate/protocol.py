"""What decoding knows of a model: four methods, a head, and two facts of its config. Nothing else may be used here.

Letters: B batch, T tokens, S source tokens, M width of the model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from headway.config.model import SpecialTokens
from headway.errors import DataError

S = TypeVar("S")
"""The state of a decoder: keys and values, a hidden vector, … Only the decoder looks inside."""


class DecoderConfig(Protocol):
    """What a config says that decoding needs."""

    @property
    def max_length(self) -> int | None:
        """Longest text the model can read; None when nothing limits it."""

    @property
    def special(self) -> SpecialTokens: ...


class Decoder(Protocol[S]):
    """A model that reads tokens one after another, with rows that can be copied, moved and dropped."""

    @property
    def config(self) -> DecoderConfig: ...

    @property
    def lm(self) -> Callable[[Tensor], Tensor]:
        """Hidden states (…, M) to scores (…, V)."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> S:
        """A state that has read nothing and has room for `capacity` tokens; `inputs` is what an encoder reads."""

    def step(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Read `ids` (B, T), padded on the left where `attention_mask` is false; logits (B, V) after the last."""

    def extend(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Read `ids` (B, T); hidden states (B, T, M) of all of them."""

    def reorder(self, state: S, /, rows: Tensor) -> S:
        """The state whose row i is this one's row rows[i]. This one is not used any more."""


M = TypeVar("M", bound="Decoder[Any]")


class DecoderWrapper(Generic[M]):
    """A decoder that reads in the place of another, whose config, head and weights it has."""

    def __init__(self, model: M) -> None:
        self.model = model

    @property
    def config(self) -> DecoderConfig:
        return self.model.config

    @property
    def lm(self) -> Callable[[Tensor], Tensor]:
        return self.model.lm

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.model.parameters()


@dataclass(frozen=True)
class Source:
    """What the encoder of an encoder–decoder reads, one row per text."""

    inputs: Tensor
    attention_mask: Tensor | None = None

    def ids(self) -> list[list[int]]:
        """The tokens of each text without padding; none where the encoder reads no tokens."""
        if self.inputs.is_floating_point():
            return [[] for _ in self.inputs]
        real = (
            torch.ones_like(self.inputs, dtype=torch.bool)
            if self.attention_mask is None
            else self.attention_mask.bool()
        )
        return [row[here].tolist() for row, here in zip(self.inputs.cpu(), real.cpu(), strict=True)]

    def take(self, rows: list[int]) -> Source:
        return Source(self.inputs[rows], None if self.attention_mask is None else self.attention_mask[rows])


def device_of(model: Decoder[S]) -> torch.device:
    return next(model.parameters()).device


def initial_ids(
    model: Decoder[S], prompts: Sequence[Sequence[int]] | None, source: Source | None = None
) -> list[list[int]]:
    """What each row begins with: its prompt, or the token an encoder–decoder starts from."""
    if prompts is None:
        start = model.config.special.start
        if source is None or start is None:
            raise DataError("D001", "there is nothing to go on from: no prompt, and no start token in the config")
        return [[start] for _ in range(len(source.inputs))]
    if source is not None and len(prompts) != len(source.inputs):
        raise DataError("D001", f"{len(prompts)} prompts but {len(source.inputs)} texts for the encoder")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise DataError("D001", f"prompt {row} is empty: there is no token to go on from")
    return [list(prompt) for prompt in prompts]


def prefill(model: Decoder[S], rows: Sequence[Sequence[int]], source: Source | None, capacity: int) -> tuple[S, Tensor]:
    """A state that has read these rows, padded on the left, and the scores (B, V) after them."""
    device, longest = device_of(model), max(len(row) for row in rows)
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
    attention_mask = None
    if any(len(row) < longest for row in rows):
        lengths = torch.tensor([len(row) for row in rows], device=device)
        attention_mask = torch.arange(longest, device=device) >= longest - lengths[:, None]
    if source is None:
        state = model.start(batch=len(rows), capacity=capacity)
    else:
        state = model.start(source.inputs, attention_mask=source.attention_mask, capacity=capacity)
    return state, model.step(state, ids, attention_mask)
