"""Rules about what may follow: those of a model's generation_config.json, the same for a draw and for a beam search.

They are those of `transformers`, in its order; a forced token comes last, so that no other rule can forbid it.

Letters: N sequences, V vocabulary, T tokens of a sequence so far, S tokens of its source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from headway.errors import ConfigError
from headway.generate.sampling.logits import (
    add_bias,
    ban,
    ban_repeats,
    decay_ends,
    force_some,
    penalise_repetition,
    seen_in,
)

Sequences = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Bias:
    """What is added to the logit of a sequence's last token, where the text ends with the tokens before it."""

    tokens: tuple[int, ...]
    value: float


@dataclass(frozen=True, kw_only=True)
class LogitRules:
    """What a `Sampling` and a `Beam` have in common."""

    bias: tuple[Bias, ...] = ()
    repetition: float = 1.0
    """Logits of tokens of the prompt and of the new text are divided by it (multiplied where negative)."""
    no_repeat: int = 0
    """So many tokens in a row never come twice, those of the prompt counted; 0 lets them."""
    no_repeat_source: int = 0
    """So many tokens in a row are never taken from the source: what an encoder reads, or else the prompt."""
    banned: Sequences = ()
    """Sequences of tokens that are never written."""
    min_tokens: int = 0
    """New tokens before the end may come."""
    min_length: int = 0
    """Tokens before the end may come, those of the prompt counted."""
    max_length: int = 0
    """Tokens that a sequence has at most, those of the prompt counted; 0 has no such limit."""
    decay: tuple[float, ...] = ()
    """After so many new tokens the end becomes likelier, by this factor for each further one: (start, factor)."""
    first_banned: tuple[int, ...] = ()
    """Tokens that the text does not begin with; it begins after the forced ones."""
    first: int | None = None
    """A token that the new text begins with (BART's forced_bos_token_id)."""
    last: int | None = None
    """A token that ends a text which reaches its longest (BART's forced_eos_token_id)."""
    forced: Sequences = ()
    """Pairs of a place in the sequence, counted from 0, and the token that stands there (Whisper's languages)."""

    def __post_init__(self) -> None:
        for name in ("no_repeat", "no_repeat_source", "min_tokens", "min_length", "max_length"):
            if getattr(self, name) < 0:
                raise ConfigError("C003", f"{name} = {getattr(self, name)} is negative")
        if not 1e-6 <= self.repetition <= 1e6:  # a NaN is outside any range
            raise ConfigError("C003", f"repetition = {self.repetition} is outside 1e-06 … 1000000.0")
        if not all(self.banned) or not all(bias.tokens for bias in self.bias):
            raise ConfigError("C003", "banned or bias has an empty entry, which every text contains")
        if self.decay and (len(self.decay) != 2 or self.decay[1] <= 0):
            raise ConfigError("C003", f"decay = {self.decay} is not a start and a factor above 0")
        if not all(len(pair) == 2 for pair in self.forced):
            raise ConfigError("C003", f"forced = {self.forced} is not a list of places and tokens")
        if not all(math.isfinite(bias.value) for bias in self.bias):
            raise ConfigError("C003", "a bias is not a finite number")

    def has_rules(self, *known: str) -> bool:
        """Whether any rule is set beside those `known` to whoever asks: a new one is unknown to all fast ways."""
        rules = (field for field in fields(LogitRules) if field.name not in (*known, "max_length"))
        return any(getattr(self, field.name) != field.default for field in rules)

    @property
    def rules(self) -> tuple[Any, ...]:
        """The values of all rules: sequences with equal ones can be held to them together."""
        return tuple(getattr(self, field.name) for field in fields(LogitRules))

    def limit(self, prompt: int, most: int) -> int:
        """New tokens of a sequence after so many of a prompt, where there may be `most`: at least one."""
        return min(most, max(1, self.max_length - prompt)) if self.max_length else most

    @property
    def tokens(self) -> Iterable[int]:
        """Every token that a rule names, to be checked against a vocabulary."""
        yield from (token for sequence in self.banned for token in sequence)
        yield from (token for bias in self.bias for token in bias.tokens)
        yield from self.first_banned
        yield from (token for _, token in self.forced)
        yield from (token for token in (self.first, self.last) if token is not None)

    @property
    def lookback(self) -> int | None:
        """How many of the last tokens the rules look at; None: at all."""
        if self.no_repeat or self.repetition != 1:
            return None
        sizes = [self.no_repeat_source, *map(len, self.banned), *(len(bias.tokens) for bias in self.bias)]
        return max(0, max(sizes) - 1)


@dataclass(frozen=True)
class RuleContext:
    """Where some sequences stand that have the same rules."""

    history: Tensor
    """(N, T): the end of prompt and new text, filled up on the left with -1."""
    source: Tensor
    """(N, S), filled up with -1."""
    steps: Tensor
    """(N,) new tokens so far."""
    prompts: Tensor
    """(N,) tokens of the prompts."""
    limits: Tensor
    """(N,) new tokens there may be."""
    ends: Tensor
    """Ids that end a sequence."""


def add_biases(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    """The first rule, before any penalty."""
    for bias in rules.bias:
        logits = add_bias(logits, place.history, bias.tokens, bias.value)
    return logits


def penalise_repeats(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    """The second, for those who do not remember which tokens a sequence has."""
    if rules.repetition == 1:
        return logits
    return penalise_repetition(logits, seen_in(place.history, logits.shape[-1]), rules.repetition)


def no_rules() -> dict[str, Any]:
    """Values that leave every logit as it is, to replace those of a guess."""
    return {field.name: field.default for field in fields(LogitRules)}


def apply_rules(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    """All others: logits (N, V) of which some are impossible."""
    if rules.no_repeat:
        logits = ban_repeats(logits, place.history, rules.no_repeat)
    if rules.no_repeat_source:
        logits = ban_repeats(logits, place.history, rules.no_repeat_source, place.source)
    if rules.banned:
        logits = ban(logits, place.history, rules.banned)
    if rules.min_tokens or rules.min_length:
        early = (place.steps < rules.min_tokens) | (place.steps + place.prompts < rules.min_length)
        logits = _without(logits, early, place.ends)
    if rules.decay:
        logits = decay_ends(logits, place.steps, place.ends, rules.decay)
    if rules.first_banned:
        begins = place.steps == _begin(rules, place)
        logits = _without(logits, begins, torch.tensor(rules.first_banned, device=logits.device))
    return _force(logits, rules, place)


def _begin(rules: LogitRules, place: RuleContext) -> Tensor:
    """The step after the forced ones."""
    forced = max((where for where, _ in rules.forced), default=-1) + 1
    return (forced - place.prompts).clamp(min=int(rules.first is not None))


def _force(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    if rules.first is not None:
        logits = force_some(logits, place.steps == 0, rules.first)
    for where, token in rules.forced:
        logits = force_some(logits, place.steps + place.prompts == where, token)
    if rules.last is not None:
        logits = force_some(logits, place.steps + 1 == place.limits, rules.last)
    return logits


def _without(logits: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """In some rows (N,), some tokens become impossible."""
    column = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device).index_fill(0, tokens, True)
    return logits.masked_fill(rows[:, None] & column, -torch.inf)
