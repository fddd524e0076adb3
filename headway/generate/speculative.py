"""Speculative decoding: a small model drafts some tokens, the large model checks them all in one forward pass.

Every token is sampled from the large model's own logits, so the sequence is the one that the large model generates
alone, greedy or sampled, with any settings; drafts only decide how many passes that takes. With a seed, drafts are
sampled with the same random numbers as the tokens, so two models that agree sample alike. (The usual rule of Leviathan
et al. 2023 keeps the distribution, but not the sequence of a seed.)
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from headway.errors import ConfigError
from headway.generate.prefix_cache import PrefixCache, PrefixState
from headway.generate.protocol import DecoderWrapper
from headway.generate.sampling.rules import no_rules
from headway.generate.sampling.sampler import Sampler, Sampling

GREEDY = Sampling(temperature=0.0)


class SpeculativeDecoder(DecoderWrapper[PrefixCache]):
    """A decoder for one sequence. Where a draft was right, the logits of the next step are there already."""

    def __init__(self, model: PrefixCache, draft: PrefixCache, sampling: Sampling = GREEDY, ahead: int = 4) -> None:
        if ahead < 1:
            raise ConfigError("C003", f"ahead = {ahead} should be at least 1")
        super().__init__(model)
        self.draft, self.ahead = draft, ahead
        if sampling.seed is None:  # without a seed, samples cannot be predicted
            sampling = replace(sampling, temperature=0.0)
        plain = replace(sampling, presence=0.0, frequency=0.0, **no_rules())  # drafts ignore rules and penalties
        self.sampler = Sampler([plain], [[]])
        self.checked: list[int] = []
        """The sequence and its draft; `logits` (T, V) are those after each of the last T tokens."""
        self.logits: Tensor | None = None
        self.steps = self.drafted = self.accepted = self.begin = self.known = 0
        """Tokens generated, drafted and accepted; the draft's first visible token; size of the draft's vocabulary."""

    @property
    def acceptance_rate(self) -> float:
        """Share of the drafted tokens that were accepted."""
        return self.accepted / max(1, self.drafted)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> PrefixState:
        if self.model.refresh() | self.draft.refresh():
            self.checked, self.logits = [], None
        return self.model.start(inputs, attention_mask=attention_mask, batch=batch, capacity=capacity)

    def reorder(self, state: PrefixState, /, rows: Tensor) -> PrefixState:
        return self.model.reorder(state, rows)

    def extend(self, state: PrefixState, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.model.extend(state, ids, attention_mask)

    def step(self, state: PrefixState, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits (1, V) after a sequence: at hand if its last token was drafted, else computed with a new draft."""
        state.ids += ids[0].tolist()
        size = len(state.ids)
        after = 0 if self.logits is None else len(self.logits) - (len(self.checked) - size) - 1
        if self.logits is not None and 0 < after < len(self.logits) and self.checked[:size] == state.ids:
            self.accepted += 1
        else:
            proposed = self._propose(state.ids, min(self.ahead, state.capacity - size))
            self.checked, after = state.ids + proposed, 0
            self.logits = self.lm(self.model.prefill(self.checked, 1 + len(proposed), state.capacity)[0])
            self.drafted += len(proposed)
        self.steps += 1
        return self.logits[after : after + 1]

    def _propose(self, tokens: list[int], most: int) -> list[int]:
        """Tokens that the draft model would generate; fewer if its context is full, none at the first step."""
        max_length = self.draft.config.max_length
        if self.begin >= len(tokens):  # the sequence was cut at its beginning
            self.begin = 0
        if max_length is not None and len(tokens) - self.begin > max_length:
            self.begin = len(tokens) - max(1, max_length // 2)
        visible = tokens[self.begin :]
        if self.logits is None:  # the first logits tell the size: vocabularies may be rounded up differently
            self.known = self.draft.lm(self.draft.prefill(visible)[:, -1]).shape[-1]
            return []
        if max(visible) >= self.known:
            return []
        count = most if max_length is None else min(most, max_length + 1 - len(visible))
        vocab = self.logits.shape[-1]
        proposed: list[int] = []
        for i in range(count):
            logits = self.draft.lm(self.draft.prefill(visible + proposed)[:, -1]).float()
            processed = self.sampler.process(logits[:, :vocab], [self.steps + i])
            token = int(self.sampler.sample(processed, [self.steps + i]))
            if token < 0:
                break
            proposed.append(token)
        return proposed
