"""From scores to choices: pure functions of tensors. Letters: B batch, V vocabulary, T tokens.

A setting is one number for all rows, or a tensor (B, 1) with one for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

Setting = float | Tensor
LIKELY = 256
"""Tokens that are looked at first, where it is enough to know the likeliest."""
PART = 128
"""Tokens of a vocabulary that are looked at as one."""


def scale(scores: Tensor, temperature: Setting) -> Tensor:
    """Scores divided by the temperature, which is above zero."""
    return scores / temperature


def keep_top_k(scores: Tensor, k: int | Tensor) -> Tensor:
    """All but the k best become impossible, where k is above zero; equals of the last one stay."""
    if isinstance(k, Tensor):
        widest = min(int(k.max()), scores.shape[-1])
        if widest <= 0:
            return scores
        k = k.to(scores.device)
        worst = scores.topk(widest).values.gather(-1, (k - 1).clamp(0, widest - 1))
        return scores.masked_fill((scores < worst) & (k > 0), -torch.inf)
    if k <= 0 or k >= scores.shape[-1]:
        return scores
    worst = scores.topk(k).values[..., -1:]
    return scores.masked_fill(scores < worst, -torch.inf)


def keep_top_p(scores: Tensor, p: Setting) -> Tensor:
    """The fewest tokens whose probabilities sum to at least p stay possible (Holtzman et al. 2020)."""
    if scores.device.type == "cpu" and scores.shape[-1] > 4 * LIKELY:
        return _keep_likely(scores, p)
    return _keep_sorted(scores, p)


def _keep_likely(scores: Tensor, p: Setting) -> Tensor:
    """The same by the likeliest tokens alone, in rows where they suffice: to sort a vocabulary takes milliseconds."""
    likely, order = scores.topk(LIKELY)
    probabilities = (likely - scores.logsumexp(-1, keepdim=True)).exp()
    beyond = _beyond(probabilities, p)
    kept = torch.full_like(scores, -torch.inf).scatter(-1, order, likely.masked_fill(beyond, -torch.inf))
    rest = ~beyond[..., -1]
    if bool(rest.any()):
        kept[rest] = _keep_sorted(scores[rest], p[rest] if isinstance(p, Tensor) else p)
    return kept


def _keep_sorted(scores: Tensor, p: Setting) -> Tensor:
    ordered, order = scores.sort(descending=True)
    probabilities = ordered.softmax(-1)
    beyond = _beyond(probabilities, p)
    return scores.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)


def _beyond(probabilities: Tensor, p: Setting) -> Tensor:
    """Which of them, likeliest first, come after those that sum to p."""
    beyond = probabilities.cumsum(-1) - probabilities >= p
    beyond = beyond & (p < 1)  # sums may round up to 1 before the end
    beyond[..., 0] = False  # the best one stays, even where p is 0
    return beyond


def keep_min_p(scores: Tensor, p: Setting) -> Tensor:
    """Tokens of at least p times the probability of the best stay possible (Nguyen et al. 2024)."""
    share = p.log() if isinstance(p, Tensor) else math.log(p) if p > 0 else -math.inf
    return scores.masked_fill(scores < scores.amax(-1, keepdim=True) + share, -torch.inf)


def keep_typical(scores: Tensor, mass: Setting) -> Tensor:
    """Tokens whose surprise is nearest to the expected one stay, as many as have this mass (Meister et al. 2023)."""
    logp = scores.log_softmax(-1)
    entropy = -(logp.exp() * logp).nansum(-1, keepdim=True)
    far, order = (-logp - entropy).abs().sort(-1)
    summed = scores.gather(-1, order).softmax(-1).cumsum(-1)
    last = (summed < mass).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
    beyond = far > far.gather(-1, last)
    beyond[..., 0] = False
    beyond = beyond & (torch.as_tensor(mass, device=scores.device) < 1)
    return scores.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)


def keep_above(scores: Tensor, least: Setting) -> Tensor:
    """Tokens of at least this probability stay possible, and the best (epsilon sampling, Hewitt et al. 2022)."""
    unlikely = scores.softmax(-1) < least
    return scores.masked_fill(unlikely & (scores < scores.amax(-1, keepdim=True)), -torch.inf)


def keep_eta(scores: Tensor, eta: Setting) -> Tensor:
    """The same with a threshold that falls where the model is unsure (Hewitt et al. 2022)."""
    logp = scores.log_softmax(-1)
    entropy = -(logp.exp() * logp).nansum(-1, keepdim=True)
    eta = torch.as_tensor(eta, dtype=scores.dtype, device=scores.device)
    return keep_above(scores, torch.minimum(eta, eta.sqrt() * (-entropy).exp()))


def penalise_repetition(scores: Tensor, seen: Tensor, penalty: Setting) -> Tensor:
    """Scores of tokens `seen` (B, V) in the text so far, divided or multiplied (Keskar et al. 2019)."""
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def penalise_counts(scores: Tensor, counts: Tensor, presence: Setting, frequency: Setting) -> Tensor:
    """Scores lowered for what was written `counts` (B, V) times: once for that, and for each time (OpenAI's API)."""
    return scores - frequency * counts - presence * (counts > 0)


def ban(scores: Tensor, history: Tensor, sequences: Sequence[Sequence[int]]) -> Tensor:
    """The last token of each sequence becomes impossible where `history` (B, T) ends with the tokens before it.

    A sequence of one token is never possible. History is filled up on the left with -1.
    """
    banned = torch.zeros_like(scores, dtype=torch.int32)
    for length, group in groupby(sorted(sequences, key=len), key=len):
        ids = torch.tensor([list(sequence) for sequence in group], device=scores.device)  # N L
        if length - 1 > history.shape[1]:
            break
        ends = history[:, history.shape[1] - (length - 1) :]
        hits = (ends[:, None] == ids[None, :, :-1]).all(-1)  # B N
        banned.index_add_(1, ids[:, -1], hits.int())
    return scores.masked_fill(banned > 0, -torch.inf)


def ban_repeats(scores: Tensor, history: Tensor, size: int, source: Tensor | None = None) -> Tensor:
    """No `size` tokens of `history` (B, T) come again in the same order: what would end them becomes impossible
    (Paulus et al. 2018). With a `source` (B, S), none of that one's. Both are filled up with -1."""
    known = history if source is None else source
    if known.shape[1] < size or history.shape[1] < size - 1:
        return scores
    rows = known.unfold(1, size, 1)  # B N size
    ends = history[:, history.shape[1] - size + 1 :]
    again = (rows[..., :-1] == ends[:, None]).all(-1) & (rows >= 0).all(-1)  # B N
    banned = torch.zeros_like(scores, dtype=torch.int32)
    banned.scatter_add_(1, rows[..., -1].clamp(min=0), again.int())
    return scores.masked_fill(banned > 0, -torch.inf)


def seen_in(history: Tensor, vocab: int) -> Tensor:
    """(B, V): which tokens `history` (B, T) has, which is filled up with -1."""
    place = torch.where(history < 0, vocab, history)
    return torch.zeros(len(history), vocab + 1, dtype=torch.bool, device=history.device).scatter(1, place, True)[:, :-1]


def add_bias(scores: Tensor, history: Tensor, sequence: Sequence[int], value: float) -> Tensor:
    """The score of a sequence's last token, plus a value where `history` (B, T) ends with the tokens before it."""
    length = len(sequence) - 1
    if length > history.shape[1]:
        return scores
    before = torch.tensor(sequence[:-1], dtype=torch.long, device=scores.device)
    hits = (history[:, history.shape[1] - length :] == before).all(-1)  # B
    return scores.index_add(
        1, torch.tensor([sequence[-1]], device=scores.device), value * hits.to(scores.dtype)[:, None]
    )


def decay_ends(scores: Tensor, steps: Tensor, ends: Tensor, decay: Sequence[float]) -> Tensor:
    """The scores of tokens that end a text, raised by factor ** n - 1 of themselves, n steps (B,) after the start."""
    start, factor = decay
    share = factor ** (steps - start).clamp(min=0).to(scores.dtype) - 1  # B
    now = scores[:, ends]
    return scores.index_copy(1, ends, torch.where(now > -torch.inf, now + now.abs() * share[:, None], now))


def tails(texts: Sequence[Sequence[int]], length: int) -> Tensor:
    """The last tokens of each text (B, length), filled up with -1: a history for the functions above."""
    ends = [list(text[len(text) - min(length, len(text)) :]) for text in texts]
    return torch.tensor([[-1] * (length - len(end)) + end for end in ends], dtype=torch.long)


def force(scores: Tensor, token: int) -> Tensor:
    """Only this token is possible, at no cost: its score is 0."""
    forced = torch.full_like(scores, -torch.inf)
    forced[..., token] = 0.0
    return forced


def force_some(scores: Tensor, rows: Tensor, token: int) -> Tensor:
    """The same in some rows (B,) of scores (B, V)."""
    return torch.where(rows[:, None], force(scores, token), scores)


def only(scores: Tensor, allowed: Tensor) -> Tensor:
    """Tokens that are not allowed (B, V) become impossible."""
    return scores.masked_fill(~allowed, -torch.inf)


def best(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The highest score of each row and its token, the first of equals.

    In two rounds on a GPU: one program a row would leave most of it idle.
    """
    rows, vocab = scores.shape
    width = next((w for w in range(1024, 128, -1) if vocab % w == 0), 0) if scores.is_cuda else 0
    if not width:
        values, tokens = scores.max(-1)
        return values, tokens
    parts, places = scores.reshape(rows, -1, width).max(-1)
    values, part = parts.max(-1)
    return values, part * width + places.gather(1, part[:, None])[:, 0]


def top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest `count` scores of each row (…, V) and their tokens, as `topk` has them.

    In two rounds: whatever is among the best is in one of the `count` parts that have the best maxima. To find these
    is a matter of reading; `topk` of a whole vocabulary takes four times as long.
    """
    vocab = scores.shape[-1]
    parts = vocab // PART
    if parts < 4 * count:
        values, tokens = scores.topk(count)
        return values, tokens
    whole = scores[..., : parts * PART].unflatten(-1, (parts, PART))
    chosen = whole.amax(-1).topk(count).indices[..., None]
    rest = torch.arange(parts * PART, vocab, device=scores.device).expand(*scores.shape[:-1], -1)
    tokens = torch.cat([(chosen * PART + torch.arange(PART, device=scores.device)).flatten(-2), rest], -1)
    values, places = scores.gather(-1, tokens).topk(count)
    return values, tokens.gather(-1, places)


def choose(scores: Tensor, draws: Tensor) -> Tensor:
    """A token per row (B,): where the sum of probabilities, in the order of ids, passes the row's draw in [0, 1).

    In float64: the sum over a large vocabulary must not leave out its rare tokens.
    """
    passed = scores.double().softmax(-1).cumsum(-1)
    found = torch.searchsorted(passed, draws[:, None] * passed[:, -1:], right=True)[:, 0]
    return found.clamp(max=scores.shape[-1] - 1)  # a row of nothing but -inf has no sum to pass
