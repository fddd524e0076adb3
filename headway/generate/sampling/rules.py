"""Rules of a generation_config.json that change logits, the same for sampling and for beam search.

They are those of `transformers`, in its order; a forced token comes last, so that no other rule can forbid it.

Letters: N sequences, V vocabulary, T tokens of a sequence so far, S tokens of its source.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from headway.config.generation import LogitRules
from headway.generate.sampling.logits import (
    add_bias,
    ban,
    ban_repeats,
    decay_ends,
    force_some,
    penalise_repetition,
    seen_in,
)
from headway.generate.sampling.timestamps import NewTokens, order_timestamps


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
    if rules.timestamps:
        logits = order_timestamps(logits, NewTokens.of(place.history, place.steps), rules.timestamps)
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
