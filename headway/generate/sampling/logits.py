"""Penalties, filters and searches over logits: pure functions. Letters: B batch, V vocabulary, T tokens.

A setting is one number for all rows, or a tensor (B, 1) with one for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

PerRow = float | Tensor
LIKELY = 256
"""The most probable tokens that top-p tries first, before it sorts a whole vocabulary."""
PART = 128
"""Tokens in one part of a vocabulary, for the two-pass search."""
CUDA_ROWS = 256
"""Rows from which the two-pass search is faster than `topk` on a GPU."""


def scale(logits: Tensor, temperature: PerRow) -> Tensor:
    """Divide logits by the temperature, which is above zero."""
    return logits / temperature


def keep_top_k(logits: Tensor, k: int | Tensor) -> Tensor:
    """All but the k best tokens become impossible, if k is above zero; ties with the last one stay."""
    if isinstance(k, Tensor):
        widest = min(int(k.max()), logits.shape[-1])
        if widest <= 0:
            return logits
        k = k.to(logits.device)
        worst = logits.topk(widest).values.gather(-1, (k - 1).clamp(0, widest - 1))
        return logits.masked_fill((logits < worst) & (k > 0), -torch.inf)
    if k <= 0 or k >= logits.shape[-1]:
        return logits
    worst = logits.topk(k).values[..., -1:]
    return logits.masked_fill(logits < worst, -torch.inf)


def keep_top_p(logits: Tensor, p: PerRow) -> Tensor:
    """The fewest tokens whose probabilities sum to at least p stay possible (Holtzman et al. 2020)."""
    if logits.device.type == "cpu" and logits.shape[-1] > 4 * LIKELY:
        return _keep_likely(logits, p)
    return _keep_sorted(logits, p)


def _keep_likely(logits: Tensor, p: PerRow) -> Tensor:
    """The same from the most probable tokens, in rows where they suffice: sorting a vocabulary takes milliseconds."""
    likely, order = logits.topk(LIKELY)
    probabilities = (likely - logits.logsumexp(-1, keepdim=True)).exp()
    beyond = _beyond(probabilities, p)
    kept = torch.full_like(logits, -torch.inf).scatter(-1, order, likely.masked_fill(beyond, -torch.inf))
    rest = ~beyond[..., -1]
    if bool(rest.any()):
        kept[rest] = _keep_sorted(logits[rest], p[rest] if isinstance(p, Tensor) else p)
    return kept


def _keep_sorted(logits: Tensor, p: PerRow) -> Tensor:
    ordered, order = logits.sort(descending=True)
    probabilities = ordered.softmax(-1)
    beyond = _beyond(probabilities, p)
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)


def _beyond(probabilities: Tensor, p: PerRow) -> Tensor:
    """Which probabilities, in descending order, come after those that sum to p."""
    beyond = probabilities.cumsum(-1) - probabilities >= p
    beyond = beyond & (p < 1)  # sums may round up to 1 before the end
    beyond[..., 0] = False  # the best one stays, even where p is 0
    return beyond


def keep_min_p(logits: Tensor, p: PerRow) -> Tensor:
    """Tokens of at least p times the probability of the best stay possible (Nguyen et al. 2024)."""
    share = p.log() if isinstance(p, Tensor) else math.log(p) if p > 0 else -math.inf
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + share, -torch.inf)


def keep_typical(logits: Tensor, mass: PerRow) -> Tensor:
    """Tokens whose surprise is nearest to the expected one stay, as many as have this mass (Meister et al. 2023)."""
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).nansum(-1, keepdim=True)
    far, order = (-logp - entropy).abs().sort(-1)
    summed = logits.gather(-1, order).softmax(-1).cumsum(-1)
    last = (summed < mass).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    beyond = far > far.gather(-1, last)
    beyond[..., 0] = False
    beyond = beyond & (torch.as_tensor(mass, device=logits.device) < 1)
    return logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)


def keep_above(logits: Tensor, least: PerRow) -> Tensor:
    """Tokens of at least this probability stay possible, and the best (epsilon sampling, Hewitt et al. 2022)."""
    unlikely = logits.softmax(-1) < least
    return logits.masked_fill(unlikely & (logits < logits.amax(-1, keepdim=True)), -torch.inf)


def keep_eta(logits: Tensor, eta: PerRow) -> Tensor:
    """The same with a threshold that falls where the model is unsure (Hewitt et al. 2022)."""
    logp = logits.log_softmax(-1)
    entropy = -(logp.exp() * logp).nansum(-1, keepdim=True)
    eta = torch.as_tensor(eta, dtype=logits.dtype, device=logits.device)
    return keep_above(logits, torch.minimum(eta, eta.sqrt() * (-entropy).exp()))


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: PerRow) -> Tensor:
    """Divide the logits of tokens `seen` (B, V) so far, or multiply them if negative (Keskar et al. 2019)."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def penalise_counts(logits: Tensor, counts: Tensor, presence: PerRow, frequency: PerRow) -> Tensor:
    """Lower the logits of tokens that were generated `counts` (B, V) times: once, and for each time (OpenAI's API)."""
    return logits - frequency * counts - presence * (counts > 0)


def ban(logits: Tensor, history: Tensor, sequences: Sequence[Sequence[int]]) -> Tensor:
    """The last token of each sequence becomes impossible where `history` (B, T) ends with the tokens before it.

    A sequence of one token is never possible. History is padded on the left with -1.
    """
    banned = torch.zeros_like(logits, dtype=torch.int32)
    for length, group in groupby(sorted(sequences, key=len), key=len):
        ids = torch.tensor([list(sequence) for sequence in group], device=logits.device)  # N L
        if length - 1 > history.shape[1]:
            break
        ends = history[:, history.shape[1] - (length - 1) :]
        hits = (ends[:, None] == ids[None, :, :-1]).all(-1)  # B N
        banned.index_add_(1, ids[:, -1], hits.int())
    return logits.masked_fill(banned > 0, -torch.inf)


def ban_repeats(logits: Tensor, history: Tensor, size: int, source: Tensor | None = None) -> Tensor:
    """No n-gram of `size` tokens in `history` (B, T) is repeated: its last token becomes impossible (Paulus et al.
    2018). With a `source` (B, S), no n-gram of the source is repeated. Both are padded with -1."""
    known = history if source is None else source
    if known.shape[1] < size or history.shape[1] < size - 1:
        return logits
    rows = known.unfold(1, size, 1)  # B N size
    ends = history[:, history.shape[1] - size + 1 :]
    again = (rows[..., :-1] == ends[:, None]).all(-1) & (rows >= 0).all(-1)  # B N
    banned = torch.zeros_like(logits, dtype=torch.int32)
    banned.scatter_add_(1, rows[..., -1].clamp(min=0), again.int())
    return logits.masked_fill(banned > 0, -torch.inf)


def seen_in(history: Tensor, vocab: int) -> Tensor:
    """(B, V): which tokens are in `history` (B, T), which is padded with -1."""
    place = torch.where(history < 0, vocab, history)
    return torch.zeros(len(history), vocab + 1, dtype=torch.bool, device=history.device).scatter(1, place, True)[:, :-1]


def add_bias(logits: Tensor, history: Tensor, sequence: Sequence[int], value: float) -> Tensor:
    """Add a value to the logit of a sequence's last token where `history` (B, T) ends with the tokens before it."""
    length = len(sequence) - 1
    if length > history.shape[1]:
        return logits
    before = torch.tensor(sequence[:-1], dtype=torch.long, device=logits.device)
    hits = (history[:, history.shape[1] - length :] == before).all(-1)  # B
    return logits.index_add(
        1, torch.tensor([sequence[-1]], device=logits.device), value * hits.to(logits.dtype)[:, None]
    )


def decay_ends(logits: Tensor, steps: Tensor, ends: Tensor, decay: Sequence[float]) -> Tensor:
    """Raise the logits of the `ends` by factor ** n - 1 of themselves, n steps (B,) after the start."""
    start, factor = decay
    share = factor ** (steps - start).clamp(min=0).to(logits.dtype) - 1  # B
    now = logits[:, ends]
    return logits.index_copy(1, ends, torch.where(now > -torch.inf, now + now.abs() * share[:, None], now))


def last_tokens(sequences: Sequence[Sequence[int]], length: int) -> Tensor:
    """The last tokens of each sequence (B, length), padded on the left with -1."""
    ends = [list(tokens[len(tokens) - min(length, len(tokens)) :]) for tokens in sequences]
    return torch.tensor([[-1] * (length - len(end)) + end for end in ends], dtype=torch.long)


def force(logits: Tensor, token: int) -> Tensor:
    """Only this token is possible, with logit 0."""
    forced = torch.full_like(logits, -torch.inf)
    forced[..., token] = 0.0
    return forced


def force_some(logits: Tensor, rows: Tensor, token: int) -> Tensor:
    """The same in some `rows` (B,) of logits (B, V)."""
    return torch.where(rows[:, None], force(logits, token), logits)


def apply_mask(logits: Tensor, allowed: Tensor) -> Tensor:
    """Tokens that are not allowed (B, V) become impossible."""
    return logits.masked_fill(~allowed, -torch.inf)


def top(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The highest `count` logits of each row (…, V) and their tokens, like `topk`.

    In two passes: the best tokens are in the `count` parts with the highest maxima. Finding these parts takes one read;
    `topk` over a whole vocabulary takes three to four times as long (`benchmarks/kernel_paths.py`).
    """
    vocab = logits.shape[-1]
    parts = vocab // PART
    rows = logits[..., 0].numel()
    if parts < 4 * count or (logits.is_cuda and rows < CUDA_ROWS):
        values, tokens = logits.topk(count)
        return values, tokens
    whole = logits[..., : parts * PART].unflatten(-1, (parts, PART))
    chosen = whole.amax(-1).topk(count).indices[..., None]
    rest = torch.arange(parts * PART, vocab, device=logits.device).expand(*logits.shape[:-1], -1)
    tokens = torch.cat([(chosen * PART + torch.arange(PART, device=logits.device)).flatten(-2), rest], -1)
    values, places = logits.gather(-1, tokens).topk(count)
    return values, tokens.gather(-1, places)


def sample_inverse_cdf(logits: Tensor, uniforms: Tensor) -> Tensor:
    """A token per row (B,): where the cumulative probability, in the order of ids, passes the row's number in [0, 1).

    In float64: the sum over a large vocabulary must not leave out its rare tokens.
    """
    passed = logits.double().softmax(-1).cumsum(-1)
    found = torch.searchsorted(passed, uniforms[:, None] * passed[:, -1:], right=True)[:, 0]
    return found.clamp(max=logits.shape[-1] - 1)  # a row of nothing but -inf has no sum to pass
