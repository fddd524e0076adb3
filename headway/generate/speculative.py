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
from headway.generate.prefix_cache import Prefix, Reading
from headway.generate.protocol import Around, Decoder
from headway.generate.sampling.rules import no_rules
from headway.generate.sampling.sampler import Chooser, Sampling

GREEDY = Sampling(temperature=0.0)


class Speculation(Around[Prefix]):
    """A decoder, for one text, whose next steps have often been read already."""

    def __init__(self, model: Prefix, draft: Prefix, sampling: Sampling = GREEDY, ahead: int = 4) -> None:
        if ahead < 1:
            raise ConfigError("C003", f"ahead = {ahead} should be at least 1")
        super().__init__(model)
        self.draft, self.ahead = draft, ahead
        if sampling.seed is None:  # what will be drawn cannot be known
            sampling = replace(sampling, temperature=0.0)
        plain = replace(sampling, presence=0.0, frequency=0.0, **no_rules())  # a guess has no memory
        self.chooser = Chooser([plain], [[]])
        self.read: list[int] = []
        """The text and its guesses that `scores` (T, V) are about: after each of its last T tokens."""
        self.scores: Tensor | None = None
        self.steps = self.guessed = self.taken = self.begin = self.known = 0
        """Tokens asked for, guessed, and guessed right; where the draft's view begins; size of its vocabulary."""

    @property
    def share(self) -> float:
        """Of the guesses, how many were right."""
        return self.taken / max(1, self.guessed)

    def start(
        self, inputs: Tensor | None = None, *, keep: Tensor | None = None, batch: int = 1, capacity: int
    ) -> Reading:
        if self.model.refresh() | self.draft.refresh():
            self.read, self.scores = [], None
        return self.model.start(inputs, keep=keep, batch=batch, capacity=capacity)

    def reorder(self, state: Reading, /, rows: Tensor) -> Reading:
        return self.model.reorder(state, rows)

    def extend(self, state: Reading, /, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.model.extend(state, ids, keep)

    def step(self, state: Reading, /, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Scores (1, V) after a text: at hand where its last tokens were guessed, else read with new guesses."""
        state.ids += ids[0].tolist()
        size = len(state.ids)
        after = 0 if self.scores is None else len(self.scores) - (len(self.read) - size) - 1
        if self.scores is not None and 0 < after < len(self.scores) and self.read[:size] == state.ids:
            self.taken += 1
        else:
            guesses = self._guess(state.ids, min(self.ahead, state.capacity - size))
            self.read, after = state.ids + guesses, 0
            self.scores = self.lm(self.model.read(self.read, 1 + len(guesses), state.capacity)[0])
            self.guessed += len(guesses)
        self.steps += 1
        return self.scores[after : after + 1]

    def _guess(self, text: list[int], most: int) -> list[int]:
        """Tokens that the draft would write on with, fewer where it can read no more; none at the first step."""
        room = self.draft.config.max_length
        if self.begin >= len(text):  # the text has been cut at its beginning
            self.begin = 0
        if room is not None and len(text) - self.begin > room:
            self.begin = len(text) - max(1, room // 2)
        seen = text[self.begin :]
        if self.scores is None:  # vocabularies may be rounded up differently: first scores tell
            self.known = self.draft.lm(self.draft.read(seen)[:, -1]).shape[-1]
            return []
        if max(seen) >= self.known:
            return []
        count = most if room is None else min(most, room + 1 - len(seen))
        vocab = self.scores.shape[-1]
        guesses: list[int] = []
        for i in range(count):
            scores = self.draft.lm(self.draft.read(seen + guesses)[:, -1]).float()
            shaped = self.chooser.shape(scores[:, :vocab], [0], [text], [self.steps + i])
            token = int(self.chooser.pick(shaped, [0], [self.steps + i]))
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
    return generate(Speculation(Prefix(model), Prefix(draft), sampling, ahead), prompt, tokens, sampling)
