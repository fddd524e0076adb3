"""How the next token is chosen: the settings, and their use on many rows with settings of their own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from headway.errors import ConfigError
from headway.generate.logits import (
    ban,
    ban_repeats,
    best,
    choose,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_counts,
    penalise_repetition,
    scale,
    tails,
)
from headway.generate.recording import put

Sequences = tuple[tuple[int, ...], ...]

COLD = 1e-5
"""Temperatures below this would divide scores beyond what float32 holds."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a text is written on. Settings apply from top to bottom: penalties, temperature, then what is kept."""

    repetition: float = 1.0
    """Scores of tokens of the prompt and of the new text are divided by it (multiplied where negative)."""
    presence: float = 0.0
    """Taken from the score of each token of the new text."""
    frequency: float = 0.0
    """Taken for each time that it is there."""
    banned: Sequences = ()
    """Sequences of tokens that are never written."""
    no_repeat: int = 0
    """So many tokens in a row never come twice, those of the prompt counted; 0 lets them."""
    temperature: float = 0.8
    """0, or next to it, takes the best token each time."""
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    """The same text each time, alone or in a batch; None draws a seed from torch."""
    stop: tuple[int, ...] | None = None
    """Tokens that end a text and are no part of it; None takes the model's own."""
    stop_strings: tuple[str, ...] = ()
    """Strings that end a text; it is cut before them."""
    max_tokens: int = 200

    def __post_init__(self) -> None:
        for name, low, high in (
            *(("repetition", 1e-6, 1e6), ("presence", -1e6, 1e6), ("frequency", -1e6, 1e6)),
            *(("temperature", 0.0, 1e6), ("top_k", 0, math.inf), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0)),
            *(("max_tokens", 0, math.inf), ("no_repeat", 0, math.inf)),
        ):
            if not low <= getattr(self, name) <= high:  # a NaN is outside any range
                raise ConfigError("C003", f"{name} = {getattr(self, name)} is outside {low} … {high}")
        for name in ("stop_strings", "banned"):
            if not all(getattr(self, name)):
                raise ConfigError("C003", f"{name} has an empty entry, which every text contains")

    @property
    def greedy(self) -> bool:
        return self.temperature < COLD


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that follows from its arguments alone: the same in any batch and on any machine.

    48 bits: a sum of probabilities times it stays below the sum when rounded.
    """
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


class Chooser:
    """The next tokens of several texts; remembers what each has, where a penalty needs it."""

    def __init__(self, settings: Sequence[Sampling], prompts: Sequence[Sequence[int]]) -> None:
        self.settings, self.prompts = settings, prompts
        self.seeds = [int(torch.randint(2**62, ())) if s.seed is None else s.seed for s in settings]
        self.repeating = any(s.repetition != 1 for s in settings)
        self.counting = any(s.presence or s.frequency for s in settings)
        self.seen: Tensor | None = None
        self.counts: Tensor | None = None
        plain = all(s.greedy and not s.banned and not s.no_repeat for s in settings)
        self.bare = plain and not self.repeating and not self.counting
        """Whether the best token is all that is asked for: filters keep it in any case."""

    def shape(self, scores: Tensor, rows: list[int], texts: Sequence[Sequence[int]]) -> Tensor:
        """Scores (B, V) of these rows as their settings want them, ready to choose from."""
        if self.bare:
            return scores
        now = [self.settings[row] for row in rows]
        if self.repeating:
            scores = penalise_repetition(
                scores, self._seen(scores)[rows], _setting(scores, [s.repetition for s in now])
            )
        if self.counting:
            presence, frequency = (_setting(scores, [getattr(s, n) for s in now]) for n in ("presence", "frequency"))
            scores = penalise_counts(scores, self._counts(scores)[rows], presence, frequency)
        for sequences in {s.banned for s in now if s.banned}:
            those = [i for i, s in enumerate(now) if s.banned == sequences]
            longest = max(len(sequence) for sequence in sequences)
            scores = _held(scores, those, texts, longest - 1, partial(ban, sequences=sequences))
        for size in {s.no_repeat for s in now if s.no_repeat}:
            those = [i for i, s in enumerate(now) if s.no_repeat == size]
            scores = _held(scores, those, texts, max(len(texts[i]) for i in those), partial(ban_repeats, size=size))
        if any(s.temperature != 1 and not s.greedy for s in now):
            scores = scale(scores, _setting(scores, [1.0 if s.greedy else s.temperature for s in now]))
        if any(s.top_k for s in now):
            scores = keep_top_k(scores, _whole([s.top_k for s in now]))
        if any(s.top_p < 1 for s in now):
            scores = keep_top_p(scores, _setting(scores, [s.top_p for s in now]))
        if any(s.min_p for s in now):
            scores = keep_min_p(scores, _setting(scores, [s.min_p for s in now]))
        return scores

    def pick(self, shaped: Tensor, rows: list[int], positions: list[int]) -> Tensor:
        """A token for each row (B,): the best, or one drawn by seed and position. -1 where none is possible."""
        highest, chosen = best(shaped)
        greedy = [] if self.bare else [self.settings[row].greedy for row in rows]
        if not all(greedy):
            draws = [uniform(self.seeds[row], position) for row, position in zip(rows, positions, strict=True)]
            drawn = choose(shaped, put(draws, shaped.device, torch.float64))
            chosen = torch.where(put(greedy, shaped.device, torch.bool), chosen, drawn) if any(greedy) else drawn
        here = put(rows, shaped.device) if self.repeating or self.counting else None
        if self.seen is not None:
            self.seen[here, chosen] = True
        if self.counts is not None:
            self.counts[here, chosen] += 1
        return chosen.where(highest > -torch.inf, -1)

    def _seen(self, scores: Tensor) -> Tensor:
        if self.seen is None:
            self.seen = torch.zeros(len(self.settings), scores.shape[-1], dtype=torch.bool)
            for row, prompt in enumerate(self.prompts):
                self.seen[row, list(prompt)] = True
            self.seen = self.seen.to(scores.device)
        return self.seen

    def _counts(self, scores: Tensor) -> Tensor:
        if self.counts is None:
            self.counts = scores.new_zeros(len(self.settings), scores.shape[-1])
        return self.counts


def _held(
    scores: Tensor,
    rows: list[int],
    texts: Sequence[Sequence[int]],
    length: int,
    rule: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Some rows of scores under a rule about the last tokens, `length` of them, of their texts."""
    history = tails([texts[i] for i in rows], length).to(scores.device)
    return scores.index_put((torch.tensor(rows, device=scores.device),), rule(scores[rows], history))


def _setting(scores: Tensor, values: list[float]) -> float | Tensor:
    """One number where all rows agree, else a column."""
    return values[0] if len(set(values)) == 1 else put(values, scores.device, scores.dtype)[:, None]


def _whole(values: list[int]) -> int | Tensor:
    return values[0] if len(set(values)) == 1 else torch.tensor(values)[:, None]
