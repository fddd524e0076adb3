"""Rules for tokens that say a time (Radford et al. 2022): in pairs, never back, and where they are likely as a whole.

They are those of `transformers`. Timestamps are the last tokens of a vocabulary, in the order of their times.

Letters: N sequences, V vocabulary, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class NewTokens:
    """What the rules need to know of the new tokens of each sequence; -1 where there is no such token."""

    last: Tensor
    """(N,)"""
    before: Tensor
    """(N,): the one before the last."""
    highest: Tensor
    """(N,)"""
    count: Tensor
    """(N,), or (1,) if it is the same for all."""

    @classmethod
    def of(cls, history: Tensor, count: Tensor) -> NewTokens:
        """From the last tokens of each sequence (N, T), the new ones on the right."""
        places = torch.arange(history.shape[1], device=history.device)
        new = torch.where(places >= history.shape[1] - count[:, None], history, -1)
        new = torch.nn.functional.pad(new, (2, 0), value=-1)
        return cls(new[:, -1], new[:, -2], new.amax(1), count)

    @classmethod
    def upto(cls, tokens: Tensor, at: Tensor) -> NewTokens:
        """From new tokens (N, T), of which only the first `at` (1,) are there: the device alone may know how many."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        known = torch.where(places < at, tokens, -1)
        known = torch.nn.functional.pad(known, (2, 0), value=-1)
        return cls(known.index_select(1, at + 1)[:, 0], known.index_select(1, at)[:, 0], known.amax(1), at)


def order_timestamps(logits: Tensor, new: NewTokens, rule: tuple[int, ...]) -> Tensor:
    """Logits (N, V) under the rule (first timestamp, end of text, latest timestamp that may come first, from 0).

    The token before the first timestamp says that there are none: it is impossible. Text tokens are those before the
    end of text. A negative latest timestamp is no limit.
    """
    first, end, latest = rule
    ids = torch.arange(logits.shape[1], device=logits.device)
    times = ids >= first
    after = new.last >= first
    paired = after & ((new.count < 2) | (new.before >= first))
    alone = after & ~paired
    least = torch.where(new.highest >= first, new.highest + (~alone).long(), first)
    never = (ids == first - 1) | (paired[:, None] & times) | (alone[:, None] & (ids < end))
    never = never | (times & (ids < least[:, None]))
    begins = ~times | (ids > first + latest) if latest >= 0 else ~times
    logits = logits.masked_fill(never | ((new.count == 0)[:, None] & begins), -torch.inf)
    logp = logits.float().log_softmax(-1)
    likely = logp[:, first:].logsumexp(-1) > logp[:, :first].amax(-1)  # all times together, against the best text
    return logits.masked_fill(likely[:, None] & ~times, -torch.inf)
