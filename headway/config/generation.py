"""Settings of generation: sampling, beam search, and the rules that both follow. No torch here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

from headway.config.ranges import in_range
from headway.errors import ConfigError

COLD = 1e-5
"""Temperatures below this would divide logits beyond float32."""
COUNT, SHARE = (0, math.inf), (0.0, 1.0)
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
    """Values added to the logits of tokens, or of the last token of a sequence."""
    repetition: float = 1.0
    """Logits of tokens in the prompt or the new text are divided by it (multiplied if negative), so that a text repeats
    itself less (Keskar et al. 2019); 1 is off."""
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
    timestamps: tuple[int, ...] = ()
    """Three numbers for models whose last tokens are times: the first of these tokens, the token that ends a text, and
    the latest time that may come first, counted from 0 (below 0: any). Times then come in order and in pairs."""

    def __post_init__(self) -> None:
        in_range(self, no_repeat=COUNT, no_repeat_source=COUNT, min_tokens=COUNT, min_length=COUNT, max_length=COUNT)
        in_range(self, repetition=(1e-6, 1e6))
        if not all(self.banned) or not all(bias.tokens for bias in self.bias):
            raise ConfigError("C003", "banned or bias has an empty entry, which every text contains")
        if self.decay and (len(self.decay) != 2 or self.decay[1] <= 0):
            raise ConfigError("C003", f"decay = {self.decay} is not a start and a factor above 0")
        if not all(len(pair) == 2 for pair in self.forced):
            raise ConfigError("C003", f"forced = {self.forced} is not a list of places and tokens")
        if len(self.timestamps) not in (0, 3):
            raise ConfigError("C003", f"timestamps = {self.timestamps} is not three numbers")
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
        if self.no_repeat or self.repetition != 1 or self.timestamps:
            return None
        sizes = [self.no_repeat_source, *map(len, self.banned), *(len(bias.tokens) for bias in self.bias)]
        return max(0, max(sizes) - 1)


@dataclass(frozen=True, kw_only=True)
class Sampling(LogitRules):
    """How tokens are sampled: biases and penalties, rules, temperature, then filters, from top to bottom."""

    presence: float = 0.0
    """Subtracted from the logit of each token in the new text."""
    frequency: float = 0.0
    """Subtracted from a token's logit for each time that the token is in the new text."""
    temperature: float = 0.8
    """Logits are divided by it: below 1 the text is safer, above 1 more varied; 0, or nearly 0, is greedy: the most
    probable token each time."""
    top_k: int = 0
    """Only this many of the most probable tokens are sampled (Fan et al. 2018); 0 keeps all."""
    top_p: float = 1.0
    """Only the fewest tokens whose probabilities sum to at least this are sampled (Holtzman et al. 2020); 1: all."""
    min_p: float = 0.0
    """Tokens below this share of the highest probability are not sampled (Nguyen et al. 2024); 0 keeps all."""
    typical_p: float = 1.0
    """Only tokens whose information is nearest to the expected one, up to this sum of probabilities, are sampled
    (Meister et al. 2023); 1 keeps all."""
    epsilon: float = 0.0
    """Tokens below this probability are not sampled (Hewitt et al. 2022); 0 keeps all."""
    eta: float = 0.0
    """Tokens below a probability that falls with the entropy are not sampled (Hewitt et al. 2022); 0 keeps all."""
    seed: int | None = None
    """A seed gives the same text each time, alone or in a batch; unset draws a seed from torch."""
    stop: tuple[int, ...] | None = None
    """Tokens that end a sequence and are no part of its text; unset: the model's own."""
    stop_strings: tuple[str, ...] = ()
    """Strings that end a sequence; its text is cut before them."""
    max_tokens: int = 200
    """The most new tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(
            self, presence=(-1e6, 1e6), frequency=(-1e6, 1e6), temperature=(0.0, 1e6), top_k=COUNT, max_tokens=COUNT
        )
        in_range(self, top_p=SHARE, min_p=SHARE, typical_p=SHARE, epsilon=SHARE, eta=SHARE)
        if not all(self.stop_strings):
            raise ConfigError("C003", "stop_strings has an empty entry, which every text contains")

    @property
    def greedy(self) -> bool:
        return self.temperature < COLD


@dataclass(frozen=True, kw_only=True)
class Beam(LogitRules):
    """Settings of a beam search."""

    width: int = 4
    """Number of beams. 1 is greedy search."""
    length_penalty: float = 1.0
    """A hypothesis of n tokens, its end included, scores log-probability / n ** length_penalty."""
    early: bool | Literal["never"] = False
    """true stops at `width` finished hypotheses; false when no running beam scores higher at its present length;
    "never" when no running beam could score higher at the most favourable length."""
    n_best: int = 1
    """Hypotheses that are returned for each input, best first."""
    groups: int = 1
    """Diverse beam search (Vijayakumar et al. 2018): equal groups that avoid each other's tokens."""
    diversity: float = 0.0
    """Subtracted from a token's rank for each time that an earlier group chose it in the same step. Scores stay
    log-probabilities."""
    max_tokens: int = 128
    """Most tokens of a hypothesis, its end included; fewer if the model's context is shorter."""
    eos: tuple[int, ...] | None = None
    """Tokens that end a hypothesis; unset: the model's own."""
    renormalise: bool = False
    """Whether probabilities are normalized again after the rules."""

    def __post_init__(self) -> None:
        super().__post_init__()
        some = (1, math.inf)
        in_range(self, width=some, n_best=some, groups=some, max_tokens=some)
        if not (math.isfinite(self.length_penalty) and 0 <= self.diversity < math.inf):
            values = f"length_penalty = {self.length_penalty}, diversity = {self.diversity}"
            raise ConfigError("C003", f"{values}: both are finite, and diversity is not negative")
        if self.n_best > self.width:
            raise ConfigError("C004", f"n_best = {self.n_best} does not go with width = {self.width}: at most that")
        if self.width % self.groups:
            raise ConfigError("C004", f"width = {self.width} does not go with groups = {self.groups}: must divide it")
        if self.diversity and self.groups == 1:
            raise ConfigError("C004", f"diversity = {self.diversity} does not go with groups = 1: it is between groups")
