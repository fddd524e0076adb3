"""How the next token is chosen: the settings, and their use on many rows with settings of their own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.errors import ConfigError
from headway.generate.accel.cuda.graphs import copy_to_device
from headway.generate.sampling.logits import (
    best,
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
from headway.generate.sampling.rules import LogitRules, RuleContext, add_biases, apply_rules

COLD = 1e-5
"""Temperatures below this would divide scores beyond what float32 holds."""


@dataclass(frozen=True, kw_only=True)
class Sampling(LogitRules):
    """How a text is written on: biases and penalties, rules, temperature, then what is kept, from top to bottom."""

    presence: float = 0.0
    """Taken from the score of each token of the new text."""
    frequency: float = 0.0
    """Taken for each time that it is there."""
    temperature: float = 0.8
    """0, or next to it, takes the best token each time."""
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon: float = 0.0
    """Tokens below this probability are not written; nor are those below `eta`, which falls with the entropy."""
    eta: float = 0.0
    seed: int | None = None
    """The same text each time, alone or in a batch; None draws a seed from torch."""
    stop: tuple[int, ...] | None = None
    """Tokens that end a text and are no part of it; None takes the model's own."""
    stop_strings: tuple[str, ...] = ()
    """Strings that end a text; it is cut before them."""
    max_tokens: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low, high in (
            *(("presence", -1e6, 1e6), ("frequency", -1e6, 1e6), ("max_tokens", 0, math.inf)),
            *(("temperature", 0.0, 1e6), ("top_k", 0, math.inf), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0)),
            *(("typical_p", 0.0, 1.0), ("epsilon", 0.0, 1.0), ("eta", 0.0, 1.0)),
        ):
            if not low <= getattr(self, name) <= high:  # a NaN is outside any range
                raise ConfigError("C003", f"{name} = {getattr(self, name)} is outside {low} … {high}")
        if not all(self.stop_strings):
            raise ConfigError("C003", "stop_strings has an empty entry, which every text contains")

    @property
    def greedy(self) -> bool:
        return self.temperature < COLD


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that follows from its arguments alone: the same in any batch and on any machine.

    48 bits: a sum of probabilities times it stays below the sum when rounded.
    """
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


class Sampler:
    """The next tokens of several texts; remembers what each has, where a penalty needs it."""

    def __init__(
        self,
        settings: Sequence[Sampling],
        prompts: Sequence[Sequence[int]],
        ends: Sequence[Sequence[int]] | None = None,
        sources: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`ends` are the tokens that end each text; `sources` what an encoder reads, or without one the prompts."""
        self.settings, self.prompts, self.sources = settings, prompts, sources
        self.ends: Sequence[Sequence[int]] = [()] * len(settings) if ends is None else ends
        self.rules = [
            (s.rules, s.max_tokens, *end) if s.has_rules("bias", "repetition") else None
            for s, end in zip(settings, self.ends, strict=True)
        ]
        """What makes rows alike, where there are rules that the chooser's own memory does not serve."""
        self.seeds = [int(torch.randint(2**62, ())) if s.seed is None else s.seed for s in settings]
        self.repeating = any(s.repetition != 1 for s in settings)
        self.counting = any(s.presence or s.frequency for s in settings)
        self.seen: Tensor | None = None
        self.counts: Tensor | None = None
        self.argmax_only = all(s.greedy and not s.has_rules() for s in settings) and not self.counting
        """Whether the best token is all that is asked for: filters keep it in any case."""

    def process(self, logits: Tensor, rows: list[int], texts: Sequence[Sequence[int]], counts: Sequence[int]) -> Tensor:
        """Scores (B, V) of these rows as their settings want them, ready to choose from.

        `texts` are prompts and new tokens, `counts` how many of these are new.
        """
        if self.argmax_only:
            return logits
        now = [self.settings[row] for row in rows]
        for those in _alike([s.bias for s in now]):
            logits = self._apply(logits, rows, those, texts, counts, add_biases)
        if self.repeating:
            logits = penalise_repetition(
                logits, self._seen(logits)[rows], _setting(logits, [s.repetition for s in now])
            )
        if self.counting:
            presence, frequency = (_setting(logits, [getattr(s, n) for s in now]) for n in ("presence", "frequency"))
            logits = penalise_counts(logits, self._counts(logits)[rows], presence, frequency)
        for those in _alike([self.rules[row] for row in rows]):
            logits = self._apply(logits, rows, those, texts, counts, apply_rules)
        return self._kept(logits, now)

    def _kept(self, logits: Tensor, now: list[Sampling]) -> Tensor:
        """Temperature, and the filters after it; those of tokens that are too likely are for draws alone."""
        if any(s.temperature != 1 and not s.greedy for s in now):
            logits = scale(logits, _setting(logits, [1.0 if s.greedy else s.temperature for s in now]))
        if any(s.top_k for s in now):
            logits = keep_top_k(logits, _whole([s.top_k for s in now]))
        if any(s.top_p < 1 for s in now):
            logits = keep_top_p(logits, _setting(logits, [s.top_p for s in now]))
        if any(s.min_p for s in now):
            logits = keep_min_p(logits, _setting(logits, [s.min_p for s in now]))
        if any(s.typical_p < 1 and not s.greedy for s in now):
            logits = keep_typical(logits, _setting(logits, [1.0 if s.greedy else s.typical_p for s in now]))
        if any(s.epsilon for s in now):
            logits = keep_above(logits, _setting(logits, [s.epsilon for s in now]))
        if any(s.eta for s in now):
            logits = keep_eta(logits, _setting(logits, [s.eta for s in now]))
        return logits

    def _apply(
        self,
        logits: Tensor,
        rows: list[int],
        those: list[int],
        texts: Sequence[Sequence[int]],
        counts: Sequence[int],
        rule: Callable[[Tensor, LogitRules, RuleContext], Tensor],
    ) -> Tensor:
        """Scores of which `those` rows, alike in their settings, follow a rule."""
        settings, device = self.settings[rows[those[0]]], logits.device
        new = [counts[i] for i in those]
        prompts = [len(texts[i]) - n for i, n in zip(those, new, strict=True)]
        back = max(map(len, texts)) if settings.lookback is None else settings.lookback
        sources = [texts[i][:n] for i, n in zip(those, prompts, strict=True)]
        if self.sources is not None:
            sources = [self.sources[rows[i]] for i in those]
        wide = max(map(len, sources)) if settings.no_repeat_source else 0
        place = RuleContext(
            history=last_tokens([texts[i] for i in those], back).to(device),
            source=last_tokens(sources, wide).to(device),
            steps=copy_to_device(new, device),
            prompts=copy_to_device(prompts, device),
            limits=copy_to_device([settings.limit(n, settings.max_tokens) for n in prompts], device),
            ends=copy_to_device(list(self.ends[rows[those[0]]]), device),
        )
        if len(those) == len(rows):
            return rule(logits, settings, place)
        return logits.index_put((copy_to_device(those, device),), rule(logits[those], settings, place))

    def sample(self, processed: Tensor, rows: list[int], positions: list[int]) -> Tensor:
        """A token for each row (B,): the best, or one drawn by seed and position. -1 where none is possible."""
        highest, chosen = best(processed)
        greedy = [] if self.argmax_only else [self.settings[row].greedy for row in rows]
        if not all(greedy):
            uniforms = [uniform(self.seeds[row], position) for row, position in zip(rows, positions, strict=True)]
            drawn = sample_inverse_cdf(processed, copy_to_device(uniforms, processed.device, torch.float64))
            chosen = (
                torch.where(copy_to_device(greedy, processed.device, torch.bool), chosen, drawn)
                if any(greedy)
                else drawn
            )
        here = copy_to_device(rows, processed.device) if self.repeating or self.counting else None
        if self.seen is not None:
            self.seen[here, chosen] = True
        if self.counts is not None:
            self.counts[here, chosen] += 1
        return chosen.where(highest > -torch.inf, -1)

    def _seen(self, logits: Tensor) -> Tensor:
        if self.seen is None:
            self.seen = torch.zeros(len(self.settings), logits.shape[-1], dtype=torch.bool)
            for row, prompt in enumerate(self.prompts):
                self.seen[row, list(prompt)] = True
            self.seen = self.seen.to(logits.device)
        return self.seen

    def _counts(self, logits: Tensor) -> Tensor:
        if self.counts is None:
            self.counts = logits.new_zeros(len(self.settings), logits.shape[-1])
        return self.counts


def _alike(keys: Sequence[Any]) -> list[list[int]]:
    """Places with equal keys, together; those whose key says nothing are left out."""
    return [[i for i, other in enumerate(keys) if other == key] for key in dict.fromkeys(keys) if key]


def _setting(logits: Tensor, values: list[float]) -> float | Tensor:
    """One number where all rows agree, else a column."""
    return values[0] if len(set(values)) == 1 else copy_to_device(values, logits.device, logits.dtype)[:, None]


def _whole(values: list[int]) -> int | Tensor:
    return values[0] if len(set(values)) == 1 else torch.tensor(values)[:, None]
