"""Sampling settings, and a sampler for many sequences with settings of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.config.generation import LogitRules
from headway.config.generation import Sampling as Sampling
from headway.generate.accel.transfer import copy_to_device
from headway.generate.sampling.logits import (
    keep_above,
    keep_eta,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    keep_typical,
    last_tokens,
    penalise_counts,
    penalise_repetition,
    sample_inverse_cdf,
    scale,
)
from headway.generate.sampling.rules import RuleContext, add_biases, apply_rules


def with_seed(sampling: Sampling) -> Sampling:
    """The settings with a seed, drawn from torch if they have none."""
    return sampling if sampling.seed is not None else replace(sampling, seed=int(torch.randint(2**62, ())))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that follows from its arguments alone: the same in any batch and on any machine.

    48 bits: a sum of probabilities times this number stays below the sum when rounded.
    """
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


class Sampler:
    """Samples the next tokens of some sequences. Counts their tokens on the device if a penalty needs it."""

    def __init__(
        self,
        settings: Sequence[Sampling],
        tokens: Sequence[Sequence[int]],
        ends: Sequence[Sequence[int]] | None = None,
        sources: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`tokens` are prompts and new tokens, in lists that grow with each step; `ends` the tokens that end each
        sequence; `sources` what an encoder reads, or without one the prompts."""
        self.settings = [with_seed(s) for s in settings]
        self.tokens, self.sources = tokens, sources
        self.ends: Sequence[Sequence[int]] = [()] * len(settings) if ends is None else ends
        self.rules = [
            (s.rules, s.max_tokens, *end) if s.has_rules("bias", "repetition") else None
            for s, end in zip(settings, self.ends, strict=True)
        ]
        """Equal for sequences that the same rules apply to; None without rules beyond bias and repetition penalty."""
        self.repeating = any(s.repetition != 1 for s in settings)
        self.counting = any(s.presence or s.frequency for s in settings)
        self.seen: Tensor | None = None
        """(B, V): tokens that a sequence has."""
        self.counts: Tensor | None = None
        """(B, V): how often a sequence has generated each token."""
        self.argmax_only = all(s.greedy and not s.has_rules() for s in settings) and not self.counting
        """Whether only the most probable token is needed: filters always keep it."""

    def process(self, logits: Tensor, counts: Sequence[int]) -> Tensor:
        """Logits (B, V) after penalties, rules, temperature and filters; `counts` are the numbers of new tokens."""
        if self.argmax_only:
            return logits
        for alike in _groups([s.bias for s in self.settings]):
            logits = self._apply(logits, alike, counts, add_biases)
        if self.repeating:
            penalty = _per_row(logits, [s.repetition for s in self.settings])
            logits = penalise_repetition(logits, self._seen(logits), penalty)
        if self.counting:
            presence = _per_row(logits, [s.presence for s in self.settings])
            frequency = _per_row(logits, [s.frequency for s in self.settings])
            logits = penalise_counts(logits, self._counts(logits, counts), presence, frequency)
        for alike in _groups(self.rules):
            logits = self._apply(logits, alike, counts, apply_rules)
        return self._filter(logits)

    def _filter(self, logits: Tensor) -> Tensor:
        """Temperature and the filters after it. Greedy sequences skip the filters that may drop the best token."""
        now = self.settings
        if any(s.temperature != 1 and not s.greedy for s in now):
            logits = scale(logits, _per_row(logits, [1.0 if s.greedy else s.temperature for s in now]))
        if any(s.top_k for s in now):
            logits = keep_top_k(logits, _whole([s.top_k for s in now]))
        if any(s.top_p < 1 for s in now):
            logits = keep_top_p(logits, _per_row(logits, [s.top_p for s in now]))
        if any(s.min_p for s in now):
            logits = keep_min_p(logits, _per_row(logits, [s.min_p for s in now]))
        if any(s.typical_p < 1 and not s.greedy for s in now):
            logits = keep_typical(logits, _per_row(logits, [1.0 if s.greedy else s.typical_p for s in now]))
        if any(s.epsilon for s in now):
            logits = keep_above(logits, _per_row(logits, [s.epsilon for s in now]))
        if any(s.eta for s in now):
            logits = keep_eta(logits, _per_row(logits, [s.eta for s in now]))
        return logits

    def _apply(
        self,
        logits: Tensor,
        alike: list[int],
        counts: Sequence[int],
        rule: Callable[[Tensor, LogitRules, RuleContext], Tensor],
    ) -> Tensor:
        """Apply a rule to the rows `alike`, which share their settings."""
        settings, device = self.settings[alike[0]], logits.device
        new = [counts[i] for i in alike]
        prompts = [len(self.tokens[i]) - counts[i] for i in alike]
        lookback = max(map(len, self.tokens)) if settings.lookback is None else settings.lookback
        if self.sources is None:
            sources = [self.tokens[i][:n] for i, n in zip(alike, prompts, strict=True)]
        else:
            sources = [self.sources[i] for i in alike]
        context = RuleContext(
            history=last_tokens([self.tokens[i] for i in alike], lookback).to(device),
            source=last_tokens(sources, max(map(len, sources)) if settings.no_repeat_source else 0).to(device),
            steps=copy_to_device(new, device),
            prompts=copy_to_device(prompts, device),
            limits=copy_to_device([settings.limit(n, settings.max_tokens) for n in prompts], device),
            ends=copy_to_device(list(self.ends[alike[0]]), device),
        )
        if len(alike) == len(logits):
            return rule(logits, settings, context)
        return logits.index_put((copy_to_device(alike, device),), rule(logits[alike], settings, context))

    def sample(self, processed: Tensor, positions: Sequence[int]) -> Tensor:
        """A token for each row (B,): the best, or one drawn by seed and position. -1 if no token is possible."""
        highest, chosen = processed.max(-1)
        greedy = [] if self.argmax_only else [s.greedy for s in self.settings]
        if not all(greedy):
            uniforms = [uniform(s.seed or 0, at) for s, at in zip(self.settings, positions, strict=True)]
            drawn = sample_inverse_cdf(processed, copy_to_device(uniforms, processed.device, torch.float64))
            if any(greedy):
                drawn = torch.where(copy_to_device(greedy, processed.device, torch.bool), chosen, drawn)
            chosen = drawn
        if self.seen is not None:
            self.seen.scatter_(1, chosen[:, None], True)
        if self.counts is not None:
            self.counts.scatter_add_(1, chosen[:, None], torch.ones_like(self.counts[:, :1]))
        return chosen.where(highest > -torch.inf, -1)

    def _seen(self, logits: Tensor) -> Tensor:
        if self.seen is None:
            self.seen = torch.zeros(logits.shape, dtype=torch.bool)
            for row, tokens in enumerate(self.tokens):
                self.seen[row, list(tokens)] = True
            self.seen = self.seen.to(logits.device)
        return self.seen

    def _counts(self, logits: Tensor, counts: Sequence[int]) -> Tensor:
        if self.counts is None:
            self.counts = torch.zeros(logits.shape, dtype=logits.dtype)
            for row, (tokens, count) in enumerate(zip(self.tokens, counts, strict=True)):
                new = torch.tensor(tokens[len(tokens) - count :], dtype=torch.long)
                self.counts[row].index_add_(0, new, torch.ones(count, dtype=logits.dtype))
            self.counts = self.counts.to(logits.device)
        return self.counts


def _groups(keys: Sequence[Any]) -> list[list[int]]:
    """Rows with equal keys, together; rows with an empty key are left out."""
    return [[i for i, other in enumerate(keys) if other == key] for key in dict.fromkeys(keys) if key]


def _per_row(logits: Tensor, values: list[float]) -> float | Tensor:
    """One number if all rows agree, else a column (B, 1)."""
    return values[0] if len(set(values)) == 1 else copy_to_device(values, logits.device, logits.dtype)[:, None]


def _whole(values: list[int]) -> int | Tensor:
    return values[0] if len(set(values)) == 1 else torch.tensor(values)[:, None]
