"""What all baselines share: embeddings, the lm head, and the methods of `Model`.

Teacher forcing and decoding are the same code: `decode` takes all tokens of a text at once, or one after the other.
Letters: B batch, T tokens, S source tokens, M width, V vocabulary.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from headway.config.networks.baseline import BaselineConfig
from headway.errors import DataError
from headway.front.tokens import TokenEmbedding
from headway.model.attention import Backend, Hook
from headway.model.heads import LMHead
from headway.model.model import Model, Output

S = TypeVar("S")
"""The decoding state: what the network remembers of each row."""


class Baseline(Model, Generic[S]):
    """A decoder of tokens, with or without an encoder before it; its only head is `lm`."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config: BaselineConfig = config
        if config.source is not None:
            self.source: TokenEmbedding = TokenEmbedding(config.source, config.width)
        self.target = TokenEmbedding(config.target, config.word_width)
        if config.shared_embedding:
            self.target.table = self.source.table
        self.lm = LMHead(config.lm, config.decoder, config.target.vocab, self.target.table)

    @abstractmethod
    def encode_source(self, inputs: Tensor, attention_mask: Tensor | None) -> S:
        """The decoding state after the encoder has read a source."""

    @abstractmethod
    def initial_state(self, rows: int, device: torch.device) -> S:
        """The decoding state of a language model before its first token."""

    @abstractmethod
    def decode(self, state: S, ids: Tensor, attention_mask: Tensor | None, hook: Hook | None = None) -> Tensor:
        """Hidden states (B, T, M) of new tokens, left-padded where `attention_mask` is false; updates the state."""

    @abstractmethod
    def reorder(self, state: S, /, rows: Tensor) -> S: ...

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """As of any model; there are no token types, and one way to compute whatever `backend` says."""
        refuse_packing(attention_mask)
        refuse_packing(target_attention_mask)
        if self.config.source is None:
            state = self.initial_state(len(inputs), inputs.device)
            return Output(self.decode(state, inputs, attention_mask, hook), attention_mask)
        if targets is None:
            raise DataError("D001", "an encoder–decoder model needs targets beside its inputs")
        state = self.encode_source(inputs, attention_mask)
        return Output(self.decode(state, targets, target_attention_mask, hook), target_attention_mask)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> S:
        """As of any model. The state has one size for texts of any length, so `capacity` reserves nothing."""
        if self.config.source is None:
            return self.initial_state(batch if inputs is None else len(inputs), next(self.parameters()).device)
        if inputs is None:
            raise DataError("D001", "an encoder–decoder model needs inputs to start from")
        return self.encode_source(inputs, attention_mask)

    def extend(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.decode(state, ids, attention_mask)


def refuse_packing(attention_mask: Tensor | None) -> None:
    """Refuse packed rows: the state would carry over from one sequence to the next."""
    if (
        attention_mask is None
        or attention_mask.dtype == torch.bool
        or attention_mask.device.type != "cpu"
        or torch.compiler.is_compiling()
    ):
        return
    if attention_mask.numel() and int(attention_mask.max()) > 1:
        raise DataError(
            "D001",
            f"{int(attention_mask.max())} packed sequences in a row: this network needs one sequence per row",
            'set data.rows = "stream"',
        )


def masked_softmax(scores: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Softmax over the last axis of attention scores (B, T, S), zero for padding; no NaN if all is padding."""
    if attention_mask is not None:
        scores = scores.masked_fill((attention_mask == 0)[:, None], torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


@torch.no_grad()
def initialise_embeddings(model: Baseline[S], std: float) -> None:
    """Embeddings and output matrix from a normal distribution; rows that no token uses are zero."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0, std)
    nn.init.normal_(model.lm.output.weight, 0, std)
    for weight, rows in model.vocabulary_rows():
        weight[rows:] = 0
