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
from headway.model.attention import Backend, Watch
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
    def read(self, inputs: Tensor, keep: Tensor | None) -> S:
        """The state that a source leaves."""

    @abstractmethod
    def fresh(self, rows: int, device: torch.device) -> S:
        """The state of a language model that has read nothing."""

    @abstractmethod
    def write(self, state: S, ids: Tensor, keep: Tensor | None, watch: Watch | None = None) -> Tensor:
        """Hidden states (B, T, M) of new tokens, padded on the left where `keep` is false; the state moves on."""

    @abstractmethod
    def reorder(self, state: S, /, rows: Tensor) -> S:
        """The state whose row i is this one's row rows[i]."""

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        target_keep: Tensor | None = None,
        backend: Backend = "fused",
        watch: Watch | None = None,
    ) -> Output:
        """Hidden states of the text that is written: `targets` where there is a source, otherwise `inputs`.

        There is one way to compute them, whatever `backend` says.
        """
        one_text_a_row(keep)
        one_text_a_row(target_keep)
        if self.config.source is None:
            return Output(self.write(self.fresh(len(inputs), inputs.device), inputs, keep, watch), keep)
        if targets is None:
            raise DataError("D001", "an encoder–decoder model needs targets beside its inputs")
        return Output(self.write(self.read(inputs, keep), targets, target_keep, watch), target_keep)

    def start(self, inputs: Tensor | None = None, *, keep: Tensor | None = None, batch: int = 1, capacity: int) -> S:
        """Ready to decode. A state is as large for a long text as for a short one: `capacity` reserves nothing."""
        if self.config.source is None:
            return self.fresh(batch if inputs is None else len(inputs), next(self.parameters()).device)
        if inputs is None:
            raise DataError("D001", "an encoder–decoder model needs inputs to start from")
        return self.read(inputs, keep)

    def extend(self, state: S, /, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, M) of the new tokens."""
        return self.write(state, ids, keep)

    def step(self, state: S, /, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Scores (B, V) after the last of the new tokens."""
        scores: Tensor = self.lm(self.extend(state, ids, keep)[:, -1])
        return scores

    def scores(self, output: Output) -> dict[str, Tensor]:
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


def one_text_a_row(keep: Tensor | None) -> None:
    """A state runs through a whole row: texts packed side by side would run into each other."""
    if keep is None or keep.dtype == torch.bool or keep.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if keep.numel() and int(keep.max()) > 1:
        raise DataError("D001", f"{int(keep.max())} texts in a row: this network reads one", 'set data.rows = "stream"')


def masked_softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Weights over the last axis of scores (B, T, S): none for padding, and no NaN where there is nothing else."""
    if keep is not None:
        scores = scores.masked_fill((keep == 0)[:, None], torch.finfo(scores.dtype).min)
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
