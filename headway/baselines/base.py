"""What all baselines share: tables, the head for words, and the surface of `Model` that others use.

A text is written by one method, `write`, all at once or token by token: teacher forcing and decoding are the same code.
Letters: B batch, T tokens, S source tokens, M width, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from headway.config.baselines import BaselineConfig
from headway.errors import DataError
from headway.model.attention import Backend, Hook
from headway.model.embed import TokenEmbedding
from headway.model.heads import LMHead
from headway.model.model import Output

S = TypeVar("S")
"""What decoding holds of each row."""


class Baseline(nn.Module, ABC, Generic[S]):
    """A network that writes text, and may have read another one first."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config
        if config.source is not None:
            self.source = TokenEmbedding(config.source, config.width)
        self.target = TokenEmbedding(config.target, config.width)
        if config.shared_embedding:
            self.target.table = self.source.table
        self.lm = LMHead(config.lm, config.decoder, config.target.vocab, self.target.table)

    @abstractmethod
    def read(self, inputs: Tensor, attention_mask: Tensor | None) -> S:
        """The state that a source leaves."""

    @abstractmethod
    def fresh(self, rows: int, device: torch.device) -> S:
        """The state of a language model that has read nothing."""

    @abstractmethod
    def write(self, state: S, ids: Tensor, attention_mask: Tensor | None, hook: Hook | None = None) -> Tensor:
        """Hidden states (B, T, M) of new tokens, left-padded where `attention_mask` is false; updates the state."""

    @abstractmethod
    def reorder(self, state: S, /, rows: Tensor) -> S:
        """The state whose row i is this one's row rows[i]."""

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        target_attention_mask: Tensor | None = None,
        backend: Backend = "fused",
        hook: Hook | None = None,
    ) -> Output:
        """Hidden states of the text that is written: `targets` where there is a source, otherwise `inputs`.

        There is one way to compute them, whatever `backend` says.
        """
        one_text_a_row(attention_mask)
        one_text_a_row(target_attention_mask)
        if self.config.source is None:
            return Output(
                self.write(self.fresh(len(inputs), inputs.device), inputs, attention_mask, hook), attention_mask
            )
        if targets is None:
            raise DataError("D001", "an encoder–decoder model needs targets beside its inputs")
        return Output(
            self.write(self.read(inputs, attention_mask), targets, target_attention_mask, hook), target_attention_mask
        )

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> S:
        """Ready to decode. A state is as large for a long text as for a short one: `capacity` reserves nothing."""
        if self.config.source is None:
            return self.fresh(batch if inputs is None else len(inputs), next(self.parameters()).device)
        if inputs is None:
            raise DataError("D001", "an encoder–decoder model needs inputs to start from")
        return self.read(inputs, attention_mask)

    def extend(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, M) of the new tokens."""
        return self.write(state, ids, attention_mask)

    def step(self, state: S, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Scores (B, V) after the last of the new tokens."""
        logits: Tensor = self.lm(self.extend(state, ids, attention_mask)[:, -1])
        return logits

    def logits(self, output: Output) -> dict[str, Tensor]:
        """Every head's scores by name: here there is one head."""
        return {"lm": self.lm(output.hidden)}

    def parameter_count(self) -> int:
        """Weights, each counted once, without the rows that only round a vocabulary up."""
        rows = dict(self.vocabulary_rows())
        return sum(rows.get(p, len(p)) * p[0].numel() for p in self.parameters())

    def vocabulary_rows(self) -> Iterator[tuple[Tensor, int]]:
        """Parameters whose first axis is a vocabulary rounded up, with its true size."""
        if self.config.source is not None:
            yield self.source.table.weight, self.config.source.vocab
        yield self.target.table.weight, self.config.target.vocab
        yield self.lm.output.weight, self.lm.vocab
        if self.lm.output.bias is not None:
            yield self.lm.output.bias, self.lm.vocab


def one_text_a_row(attention_mask: Tensor | None) -> None:
    """A state runs through a whole row: texts packed side by side would run into each other."""
    if (
        attention_mask is None
        or attention_mask.dtype == torch.bool
        or attention_mask.device.type != "cpu"
        or torch.compiler.is_compiling()
    ):
        return
    if attention_mask.numel() and int(attention_mask.max()) > 1:
        raise DataError(
            "D001", f"{int(attention_mask.max())} texts in a row: this network reads one", 'set data.rows = "stream"'
        )


def masked_softmax(scores: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Weights over the last axis of scores (B, T, S): none for padding, and no NaN where there is nothing else."""
    if attention_mask is not None:
        scores = scores.masked_fill((attention_mask == 0)[:, None], torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


@torch.no_grad()
def start_tables(model: Baseline[S], std: float) -> None:
    """Token and position tables from a normal distribution; rows that no token reads stay at zero."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0, std)
    nn.init.normal_(model.lm.output.weight, 0, std)
    for weight, rows in model.vocabulary_rows():
        weight[rows:] = 0
