"""What decoding knows of a model: four methods, a head, and two fields of its config. Nothing else may be used.

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
"""The state of a decoder: a KV cache, a hidden vector, … Only the decoder looks inside."""


class DecoderConfig(Protocol):
    """The fields of a config that decoding needs."""

    @property
    def max_length(self) -> int | None:
        """Tokens of the longest sequence that the model can read; None if nothing limits it."""

    @property
    def special(self) -> SpecialTokens: ...


class Decoder(Protocol[S]):
    """A model that generates token by token, with a state whose rows can be copied, moved and dropped."""

    @property
    def config(self) -> DecoderConfig: ...

    @property
    def lm(self) -> Callable[[Tensor], Tensor]:
        """Hidden states (…, M) to logits (…, V)."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> S:
        """An empty state with room for `capacity` tokens; `inputs` is what an encoder reads."""

    def step(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Append `ids` (B, T), left-padded where `attention_mask` is false. Returns logits (B, V) after the last."""

    def extend(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Append `ids` (B, T). Returns the hidden states (B, T, M) of all of them."""

    def reorder(self, state: S, /, rows: Tensor) -> S:
        """A state whose row i is row rows[i] of the given state, which must not be used any more."""


M = TypeVar("M", bound="Decoder[Any]")


class DecoderWrapper(Generic[M]):
    """A decoder around another one, with the config, head and weights of that one."""

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
    """The encoder's inputs, one row per sequence."""

    inputs: Tensor
    attention_mask: Tensor | None = None

    def ids(self) -> list[list[int]]:
        """The tokens of each row without padding; empty if the encoder does not read tokens."""
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
    """The first tokens of each row: its prompt, or the start token of an encoder–decoder."""
    if prompts is None:
        start = model.config.special.start
        if source is None or start is None:
            why = "no prompt, and the config has no start token: there is nothing to go on from"
            hint = "set decoder_start_token_id in generation_config.json; mBART's is the token of the target language"
            raise DataError("D001", why, hint)
        return [[start] for _ in range(len(source.inputs))]
    if source is not None and len(prompts) != len(source.inputs):
        raise DataError("D001", f"{len(prompts)} prompts but {len(source.inputs)} inputs for the encoder")
    for row, prompt in enumerate(prompts):
        if not prompt:
            raise DataError("D001", f"prompt {row} is empty: there is no token to go on from")
    return [list(prompt) for prompt in prompts]


def prefill(model: Decoder[S], rows: Sequence[Sequence[int]], source: Source | None, capacity: int) -> tuple[S, Tensor]:
    """Prefill these rows, padded on the left. Returns the state and the logits (B, V) after them."""
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
