"""Speculative decoding: a small model guesses some tokens ahead, the large one reads them all in one pass.

Every token is still chosen from the large model's own scores, so the text is the one it writes alone, drawn or
greedy, with any setting; guesses only decide how many passes that takes. With a seed the guesses are made with the
very draws that will choose, so that two models that agree draw alike. (The usual rule of Leviathan et al. 2023 keeps
the distribution but not the text of a seed.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.errors import ConfigError
from headway.generate.decode import generate
from headway.generate.prefix_cache import PrefixCache, PrefixState
from headway.generate.protocol import Decoder, DecoderWrapper
from headway.generate.sampling.rules import no_rules
from headway.generate.sampling.sampler import Sampler, Sampling

GREEDY = Sampling(temperature=0.0)


class SpeculativeDecoder(DecoderWrapper[PrefixCache]):
    """A decoder, for one text, whose next steps have often been read already."""

    def __init__(self, model: PrefixCache, draft: PrefixCache, sampling: Sampling = GREEDY, ahead: int = 4) -> None:
        if ahead < 1:
            raise ConfigError("C003", f"ahead = {ahead} should be at least 1")
        super().__init__(model)
        self.draft, self.ahead = draft, ahead
        if sampling.seed is None:  # what will be drawn cannot be known
            sampling = replace(sampling, temperature=0.0)
        plain = replace(sampling, presence=0.0, frequency=0.0, **no_rules())  # a guess has no memory
        self.sampler = Sampler([plain], [[]])
        self.read: list[int] = []
        """The text and its guesses that `logits` (T, V) are about: after each of its last T tokens."""
        self.logits: Tensor | None = None
        self.steps = self.drafted = self.accepted = self.begin = self.known = 0
        """Tokens asked for, guessed, and guessed right; where the draft's view begins; size of its vocabulary."""

    @property
    def acceptance_rate(self) -> float:
        """Of the guesses, how many were right."""
        return self.accepted / max(1, self.drafted)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> PrefixState:
        if self.model.refresh() | self.draft.refresh():
            self.read, self.logits = [], None
        return self.model.start(inputs, attention_mask=attention_mask, batch=batch, capacity=capacity)

    def reorder(self, state: PrefixState, /, rows: Tensor) -> PrefixState:
        return self.model.reorder(state, rows)

    def extend(self, state: PrefixState, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.model.extend(state, ids, attention_mask)

    def step(self, state: PrefixState, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Scores (1, V) after a text: at hand where its last tokens were guessed, else read with new guesses."""
        state.ids += ids[0].tolist()
        size = len(state.ids)
        after = 0 if self.logits is None else len(self.logits) - (len(self.read) - size) - 1
        if self.logits is not None and 0 < after < len(self.logits) and self.read[:size] == state.ids:
            self.accepted += 1
        else:
            guesses = self._guess(state.ids, min(self.ahead, state.capacity - size))
            self.read, after = state.ids + guesses, 0
            self.logits = self.lm(self.model.read(self.read, 1 + len(guesses), state.capacity)[0])
            self.drafted += len(guesses)
        self.steps += 1
        return self.logits[after : after + 1]

    def _guess(self, text: list[int], most: int) -> list[int]:
        """Tokens that the draft would write on with, fewer where it can read no more; none at the first step."""
        room = self.draft.config.max_length
        if self.begin >= len(text):  # the text has been cut at its beginning
            self.begin = 0
        if room is not None and len(text) - self.begin > room:
            self.begin = len(text) - max(1, room // 2)
        seen = text[self.begin :]
        if self.logits is None:  # vocabularies may be rounded up differently: first scores tell
            self.known = self.draft.lm(self.draft.read(seen)[:, -1]).shape[-1]
            return []
        if max(seen) >= self.known:
            return []
        count = most if room is None else min(most, room + 1 - len(seen))
        vocab = self.logits.shape[-1]
        guesses: list[int] = []
        for i in range(count):
            logits = self.draft.lm(self.draft.read(seen + guesses)[:, -1]).float()
            processed = self.sampler.process(logits[:, :vocab], [self.steps + i])
            token = int(self.sampler.sample(processed, [self.steps + i]))
            if token < 0:
                break
            guesses.append(token)
        return guesses


def speculate(
    model: Decoder[Any],
    draft: Decoder[Any],
    prompt: Sequence[int],
    tokens: int,
    sampling: Sampling = GREEDY,
    *,
    ahead: int = 4,
) -> Iterator[int]:
    """What `generate` of the model gives, in fewer of its passes: up to `tokens` new ids, greedily unless said."""
    if sampling.seed is None:
        sampling = replace(sampling, seed=int(torch.randint(2**62, ())))
    return generate(
        SpeculativeDecoder(PrefixCache(model), PrefixCache(draft), sampling, ahead), prompt, tokens, sampling
    )
