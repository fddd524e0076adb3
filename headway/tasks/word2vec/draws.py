"""What training draws: words left out, how far a window reaches, negatives. Each is a hash of the word's place.

So a step has the same pairs on every device, and on a CPU in any number of threads. Letters: B spans, L words of a
span, V words of the vocabulary, N words that are kept, W window, P predictions, C inputs of a prediction, K negatives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.permutation import Index, splitmix64
from headway.tasks.word2vec.task import Settings

LOW = (1 << 32) - 1
NONE = -1
"""In place of an input or a negative that a prediction does not have."""
FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Of SplitMix64, as headway.data.batching.permutation has it."""


@dataclass(frozen=True)
class Sampling:
    """How words are drawn. Shares are out of 2^32."""

    keep: Tensor
    """(V,): how likely a word stays in the text."""
    shares: Tensor
    others: Tensor
    """(V,) both: negatives are drawn by Walker's alias method; a cell is its own word with this share, else another."""
    key: int
    window: int
    negatives: int
    bag: bool

    def to(self, device: torch.device) -> Sampling:
        keep, shares, others = (each.to(device) for each in (self.keep, self.shares, self.others))
        return replace(self, keep=keep, shares=shares, others=others)


class Predictions(NamedTuple):
    """The predictions of a step, in the order in which one thread learns them."""

    inputs: Tensor
    """(P, C): the words that predict; NONE after them."""
    targets: Tensor
    """(P, 1 + K): the word to predict, and negatives; NONE in place of a negative that is that word."""
    centre: Tensor
    """(P,): the kept word whose window it is, counted from 0."""


def make_sampling(counts: Index, settings: Settings, seed: int) -> Sampling:
    """The shares of words by their counts."""
    share = counts / max(1, counts.sum())
    keep = np.ones(len(counts))
    if settings.subsample:
        relative = settings.subsample / np.maximum(share, 1e-300)
        keep = np.minimum(1.0, np.sqrt(relative) + relative)
    shares, others = alias_table(counts.astype(np.float64) ** settings.power * (counts > 0))
    tables = ((keep * 2**32).astype(np.int64), (shares * 2**32).astype(np.int64), others.astype(np.int64))
    keep_, shares_, others_ = (torch.from_numpy(table) for table in tables)
    key = int(splitmix64(np.uint64(seed & (2**64 - 1)))) >> 1
    return Sampling(keep_, shares_, others_, key, settings.window, settings.negatives, settings.model == "cbow")


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, Index]:
    """Walker's table: a uniform cell is its own number with some probability, else another (Vose 1991)."""
    share = weights * (len(weights) / weights.sum())
    other = np.arange(len(share))
    small, large = list(np.flatnonzero(share < 1)[::-1]), list(np.flatnonzero(share >= 1)[::-1])
    while small and large:
        cell, giver = small.pop(), large[-1]
        other[cell] = giver
        share[giver] -= 1 - share[cell]
        if share[giver] < 1:
            small.append(large.pop())
    share[[*small, *large]] = 1.0  # what is left differs from 1 by rounding alone
    return share, other


def predictions(spans: Tensor, places: Tensor, sampling: Sampling) -> Predictions:
    """What is learned from spans (B, L) whose first words are at `places` (B,)."""
    length, window, device = spans.shape[1], sampling.window, spans.device
    spans = spans.long()
    states = mixed(places[:, None] + torch.arange(length, device=device) + sampling.key)
    kept = (spans >= 0) & (_high(states) < sampling.keep[spans.clamp(min=0)])
    sentence = (spans < 0).cumsum(1) + torch.arange(len(spans), device=device)[:, None] * (length + 1)
    words, state, sentence = spans[kept], states[kept], sentence[kept]
    reach = 1 + ((state & LOW) * window >> 32)
    away = torch.tensor([*range(-window, 0), *range(1, window + 1)], device=device)
    other = torch.arange(len(words), device=device)[:, None] + away  # N 2W
    inside = (other >= 0) & (other < len(words)) & (away.abs() <= reach[:, None])
    other = other.clamp(0, max(0, len(words) - 1))
    inside &= sentence[other] == sentence[:, None]
    if sampling.bag:
        centre = inside.any(1).nonzero()[:, 0]
        inputs = torch.where(inside, words[other], NONE)[centre]
        return Predictions(inputs, _targets(words[centre], state[centre], 0 * centre, sampling), centre)
    centre, column = inside.nonzero(as_tuple=True)
    targets = _targets(words[other[centre, column]], state[centre], away[column] + window, sampling)
    return Predictions(words[centre][:, None], targets, centre)


def _targets(words: Tensor, states: Tensor, place: Tensor, sampling: Sampling) -> Tensor:
    """(P, 1 + K): words, and the negatives beside them; `place` tells the predictions of a window apart."""
    numbers = torch.arange(sampling.negatives, device=words.device)
    bits = mixed((states + 1 + place * sampling.negatives)[:, None] + numbers)
    cell = _high(bits) * len(sampling.shares) >> 32
    drawn = torch.where((bits & LOW) >= sampling.shares[cell], sampling.others[cell], cell)
    drawn = torch.where(drawn == words[:, None], NONE, drawn)
    return torch.cat([words[:, None], drawn], 1)


def mixed(x: Tensor) -> Tensor:
    """SplitMix64 of integers of 64 bits, whose products wrap around."""
    first, second, third = (factor - (1 << 64) if factor >> 63 else factor for factor in FACTORS)
    x = x + first
    x = (x ^ _shifted(x, 30)) * second
    x = (x ^ _shifted(x, 27)) * third
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x shifted to the right as if it had no sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _high(x: Tensor) -> Tensor:
    return _shifted(x, 32)
