"""Rules of a generation_config.json that change logits, the same for sampling and for beam search.

They are those of `transformers`, in its order; a forced token comes last, so that no other rule can forbid it.

Letters: N sequences, V vocabulary, T tokens of a sequence so far, S tokens of its source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
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
    """A value added to the logit of a sequence's last token, where the text ends with the tokens before it."""

    tokens: tuple[int, ...]
    value: float


@dataclass(frozen=True, kw_only=True)
class LogitRules:
    """The rules that `Sampling` and `Beam` share."""

    bias: tuple[Bias, ...] = ()
    repetition: float = 1.0
    """Logits of tokens in the prompt or the new text are divided by it (multiplied if negative)."""
    no_repeat: int = 0
    """Size of n-grams that are never repeated, the prompt included; 0 allows repetition."""
    no_repeat_source: int = 0
    """Size of n-grams that are never copied from the source: the encoder's input, or else the prompt."""
    banned: Sequences = ()
    """Token sequences that are never generated."""
    min_tokens: int = 0
    """New tokens before an end token is allowed."""
    min_length: int = 0
    """Tokens, the prompt included, before an end token is allowed."""
    max_length: int = 0
    """Most tokens of a sequence, the prompt included; 0: no such limit."""
    decay: tuple[float, ...] = ()
    """(start, factor): after `start` new tokens, each further one raises the end's probability by the factor."""
    first_banned: tuple[int, ...] = ()
    """Tokens that the new text must not begin with, after the forced ones."""
    first: int | None = None
    """A token that the new text begins with (BART's forced_bos_token_id)."""
    last: int | None = None
    """The token that ends a text of maximum length (BART's forced_eos_token_id)."""
    forced: Sequences = ()
    """Pairs of a position in the sequence, from 0, and the token forced there (Whisper's languages)."""

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
        """Whether a rule is set that is not among the `known` ones. An accelerated path names those it knows."""
        return not self._names.issubset(known)

    @cached_property
    def _names(self) -> frozenset[str]:
        """The rules that are set. Found once: an engine asks for every sequence whenever its batch changes."""
        rules = (field for field in fields(LogitRules) if field.name != "max_length")
        return frozenset(field.name for field in rules if getattr(self, field.name) != field.default)

    @cached_property
    def token_biases(self) -> tuple[list[int], list[float]]:
        """Tokens with a bias that depends on no other token, and these biases."""
        single = [bias for bias in self.bias if len(bias.tokens) == 1]
        return [bias.tokens[0] for bias in single], [bias.value for bias in single]

    @property
    def rules(self) -> tuple[Any, ...]:
        """The values of all rules. Sequences with equal values can be processed together."""
        return tuple(getattr(self, field.name) for field in fields(LogitRules))

    def limit(self, prompt: int, most: int) -> int:
        """Most new tokens after `prompt` tokens, if `most` are allowed otherwise: at least one."""
        return min(most, max(1, self.max_length - prompt)) if self.max_length else most

    @property
    def tokens(self) -> Iterable[int]:
        """Every token that a rule names, to check them against a vocabulary."""
        yield from (token for sequence in self.banned for token in sequence)
        yield from (token for bias in self.bias for token in bias.tokens)
        yield from self.first_banned
        yield from (token for _, token in self.forced)
        yield from (token for token in (self.first, self.last) if token is not None)

    @property
    def lookback(self) -> int | None:
        """How many of the last tokens the rules need; None: all."""
        if self.no_repeat or self.repetition != 1:
            return None
        sizes = [self.no_repeat_source, *map(len, self.banned), *(len(bias.tokens) for bias in self.bias)]
        return max(0, max(sizes) - 1)


@dataclass(frozen=True)
class RuleContext:
    """What rules need to know of some sequences that share them."""

    history: Tensor
    """(N, T): the last tokens of prompt and new text, padded on the left with -1."""
    source: Tensor
    """(N, S), padded with -1."""
    steps: Tensor
    """(N,) new tokens so far."""
    prompts: Tensor
    """(N,) tokens of the prompts."""
    limits: Tensor
    """(N,) most new tokens."""
    ends: Tensor
    """Ids that end a sequence."""


def add_biases(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    """The first rule, before any penalty. Biases of single tokens are added at once: a request may have hundreds."""
    tokens, values = rules.token_biases
    if tokens:
        places = torch.tensor(tokens, device=logits.device)
        added = torch.tensor(values, dtype=logits.dtype, device=logits.device)
        logits = logits.index_add(1, places, added.expand(len(logits), -1))
    for bias in rules.bias:
        if len(bias.tokens) > 1:
            logits = add_bias(logits, place.history, bias.tokens, bias.value)
    return logits


def penalise_repeats(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    """The second rule, for callers that do not count tokens themselves."""
    if rules.repetition == 1:
        return logits
    return penalise_repetition(logits, seen_in(place.history, logits.shape[-1]), rules.repetition)


def no_rules() -> dict[str, Any]:
    """Values that leave every logit as it is, for drafts of speculative decoding."""
    return {field.name: field.default for field in fields(LogitRules)}


def apply_rules(logits: Tensor, rules: LogitRules, place: RuleContext) -> Tensor:
    """All other rules: logits (N, V) of which some become impossible."""
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
    """The step after the forced tokens."""
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
