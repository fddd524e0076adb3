"""n-gram language model: the next token by tables of what followed the last n - 1 tokens in the training text.

Where a context was never seen, the model backs off to a shorter one. Its hidden states are no vectors: they are the
numbers of the contexts that end at a token, of 1, 2, … n - 1 tokens, and -1 where one was never seen.
Letters: B batch, T tokens, C contexts, N rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.config.networks.ngram import NGramConfig
from headway.model.attention import Backend, Hook
from headway.model.heads import LMHead
from headway.model.model import Model, Output


@dataclass
class State:
    """The decoding state: the contexts that end at the last token (B, C)."""

    contexts: Tensor


class NGramHead(LMHead):
    """Contexts to log-probabilities. The tables are those of `tasks/lm/kneser_ney`; no matrix is multiplied."""

    def __init__(self, config: NGramConfig) -> None:
        nn.Module.__init__(self)  # not LMHead's, which makes an output matrix
        self.config, self.vocab = config.lm, config.vocab
        sizes = [config.vocab, *config.ngrams]
        self.log_probs = nn.ParameterList(_table(torch.full((n,), -math.log(config.vocab))) for n in sizes)
        self.backoffs = nn.ParameterList(_table(torch.zeros(n)) for n in sizes[:-1])
        self.keys = nn.ParameterList(_table(torch.full((n,), -1)) for n in sizes[1:])

    def forward(self, x: Tensor) -> Tensor:
        """Contexts (…, C) to log-probabilities (…, V)."""
        contexts = x.flatten(0, -2)  # N C
        if not len(self.keys):
            alike: Tensor = self.log_probs[0].expand(*x.shape[:-1], -1).clone()
            return alike
        last, rows = contexts[:, 0].unique(return_inverse=True)  # few: what follows one token is looked up once
        weights = self._backoffs(contexts)
        table = self.log_probs[0] + torch.where(last < 0, 0.0, self.backoffs[0][last.clamp(min=0)])[:, None]
        self._fill(table, 0, last, torch.zeros_like(table[:, 0]))
        found = table[rows]
        found += weights[0][:, None]
        for length in range(1, len(self.keys)):
            self._fill(found, length, contexts[:, length], weights[length])
        logits: Tensor = found.unflatten(0, x.shape[:-1])
        return logits

    def padded_logits(self, x: Tensor) -> Tensor:
        """The same: a table has as many rows as the vocabulary."""
        return self.forward(x)

    def features(self, x: Tensor) -> Tensor:
        return x

    def _backoffs(self, contexts: Tensor) -> list[Tensor]:
        """For each length of context, the log-weights of all longer contexts together (N,)."""
        sums = [torch.zeros(len(contexts), dtype=self.log_probs[0].dtype, device=contexts.device)]
        for table, numbers in list(zip(self.backoffs, contexts.unbind(1), strict=True))[:0:-1]:
            sums.append(sums[-1] + torch.where(numbers < 0, 0.0, table[numbers.clamp(min=0)]))
        return sums[::-1]

    def _fill(self, logits: Tensor, length: int, contexts: Tensor, weights: Tensor) -> None:
        """Replace the logits (N, V) of the tokens that were seen after each row's context (N,)."""
        keys = self.keys[length]
        begin, end = torch.searchsorted(keys, torch.stack([contexts, contexts + 1]) * self.vocab)  # none after -1
        count = end - begin
        rows = torch.arange(len(contexts), device=keys.device).repeat_interleave(count)
        if not len(rows):
            return
        place = torch.arange(len(rows), device=keys.device) + (end - count.cumsum(0))[rows]
        logits[rows, keys[place] % self.vocab] = self.log_probs[length + 1][place] + weights[rows]


class NGram(Model):
    """An n-gram model. Training does not adjust it by gradients: `fill` takes the tables of a text."""

    def __init__(self, config: NGramConfig) -> None:
        super().__init__()
        self.config: NGramConfig = config
        self.lm: NGramHead = NGramHead(config)

    @torch.no_grad()
    def fill(self, *tables: Sequence[Tensor]) -> None:
        """Take log-probabilities, log-weights of shorter contexts, and keys."""
        for mine, given in zip((self.lm.log_probs, self.lm.backoffs, self.lm.keys), tables, strict=True):
            for parameter, tensor in zip(mine, given, strict=True):
                parameter.copy_(tensor)

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
        """As of any model; packed sequences do not see each other."""
        hidden, _ = self._read(self._empty(len(inputs), inputs.device), inputs, attention_mask)
        return Output(hidden, attention_mask)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> State:
        """As of any model. The state has one size for texts of any length, so `capacity` reserves nothing."""
        return State(self._empty(batch if inputs is None else len(inputs), self.lm.log_probs[0].device))

    def extend(self, state: State, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        hidden, state.contexts = self._read(state.contexts, ids, attention_mask)
        return hidden

    def reorder(self, state: State, /, rows: Tensor) -> State:
        return State(state.contexts[rows])

    def _empty(self, rows: int, device: torch.device) -> Tensor:
        return torch.full((rows, self.config.width), -1, device=device)

    def _read(self, before: Tensor, ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Contexts (B, T, C) after each token, and after the last real one (B, C); padding can be anywhere."""
        if attention_mask is None:
            found = self._contexts(before, ids, None)
            return found, found[:, -1]
        real = attention_mask != 0
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True)  # real tokens first
        found = self._contexts(before, ids.gather(1, order), attention_mask.to(torch.long).gather(1, order))
        after = torch.cat([before[:, None], found], 1)[torch.arange(len(ids), device=ids.device), real.sum(1)]
        back = order.argsort(1)[..., None].expand_as(found)
        return found.gather(1, back).masked_fill(~real[..., None], -1), after

    def _contexts(self, before: Tensor, ids: Tensor, segment_ids: Tensor | None) -> Tensor:
        """Contexts (B, T, C) after each token: those before it, each longer by the token."""
        levels = [ids]
        for length, keys in enumerate(self.lm.keys[:-1]):
            shorter = torch.cat([before[:, length : length + 1], levels[-1][:, :-1]], 1)
            if segment_ids is not None:
                shorter[:, 1:][segment_ids[:, 1:] != segment_ids[:, :-1]] = -1
            wanted = shorter * self.config.vocab + ids
            place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
            levels.append(torch.where((shorter >= 0) & (keys[place] == wanted), place, -1))
        return torch.stack(levels, -1)

    def parameter_count(self) -> int:
        """Probabilities and weights of contexts; the keys say only where they belong."""
        return sum(table.numel() for table in (*self.lm.log_probs, *self.lm.backoffs))

    def vocabulary_rows(self) -> Iterator[tuple[Tensor, int]]:
        """None is rounded up."""
        return iter(())


def _table(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)
