"""Attention over the tiles of a pattern: keys are gathered for each tile of queries.

For a CPU, and for what FlexAttention cannot do. Memory grows with the length: gradients gather and compute once more.

Letters: B batch, T tokens, H heads, D width of a head, F tiles of all sequences, Q and K tiles of a group, S tile size,
X sequences that share their groups: all of a batch, with F the tiles of one; or 1, with F those of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.kernels.sparse.tiles import Tiles

SCORES = 1 << 20
"""About so many scores are computed at a time: they and their keys stay in a processor's cache."""


@dataclass(frozen=True)
class Group:
    """Tiles of queries (Q,) that see about equally many tiles of keys (Q, K)."""

    queries: Tensor
    keys: Tensor
    valid: Tensor
    """(Q, K): false where a tile of queries sees fewer tiles than others of its group."""


def make_groups(tiles: Tiles, heads: int) -> list[Group]:
    """All tiles of queries, numbered over the batch, in groups; those that see most come last.

    `heads` are those that are computed together, of all sequences that share the groups.
    """
    batch, each = tiles.seen.shape[:2]
    seen = tiles.seen.flatten(0, 1)
    count, order = seen.sum(-1).sort(stable=True)
    counts, groups, at = count.tolist(), [], 0
    while at < batch * each:
        fits = max(1, SCORES // (heads * tiles.size**2 * counts[at]))
        end = min(at + fits, batch * each)
        while counts[end - 1] > 2 * counts[at]:  # padding would cost more than another group
            end = at + (end - at) // 2
        queries, most = order[at:end], counts[end - 1]
        keys = seen[queries].int().sort(dim=-1, descending=True, stable=True).indices[:, :most]
        valid = torch.arange(most, device=seen.device) < count[at:end, None]
        groups.append(Group(queries, keys + queries[:, None] // each * each, valid))
        at = end
    return groups


@torch.compiler.disable  # type: ignore[untyped-decorator]  # groups depend on the mask's values
def gathered_attention(
    groups: Sequence[Group], biases: Sequence[Tensor], size: int, q: Tensor, k: Tensor, v: Tensor, scale: float,
    dropout: float,
) -> Tensor:  # fmt: skip
    """Attention output (B, H, T, D) over the tiles of `groups`, each with a bias (Q, 1 or H, S, K·S) like any other."""
    out: Tensor = _Gathered.apply(q, k, v, groups, size, scale, dropout, *biases)  # type: ignore[no-untyped-call]
    return out


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, groups: Sequence[Group], size: int, scale: float, dropout: float,
        *biases: Tensor,
    ) -> Tensor:  # fmt: skip
        seed = int(torch.randint(1 << 40, ())) if dropout else 0
        share = sum(len(group.queries) for group in groups) == -(-q.shape[2] // size)
        tq, tk, tv = (_tiled(x, size, share) for x in (q, k, v))
        ctx.settings = groups, size, share, scale, dropout, seed
        out = torch.empty_like(tq)
        for number, (group, bias) in enumerate(zip(groups, biases, strict=True)):
            weights = _weights(tq, tk, group, bias, scale).to(v.dtype)
            out[:, :, group.queries] = _dropped(weights, dropout, seed + number) @ _gather(tv, group)
        result = _untiled(out, q)
        ctx.save_for_backward(q, k, v, result, *biases)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        groups, size, share, scale, dropout, seed = ctx.settings
        q, k, v, result, *biases = ctx.saved_tensors
        tq, tk, tv, to, tg = (_tiled(x, size, share) for x in (q, k, v, result, gradient))
        dq = torch.empty_like(tq)
        dk, dv = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (tk, tv))
        changes: list[Tensor | None] = []
        for number, (group, bias) in enumerate(zip(groups, biases, strict=True)):
            weights, inner = _weights(tq, tk, group, bias, scale), tg[:, :, group.queries]
            _scatter(dv, group, _dropped(weights.to(v.dtype), dropout, seed + number).mT @ inner)
            slope = _dropped((inner @ _gather(tv, group).mT).float(), dropout, seed + number)
            slope = slope - (inner.float() * to[:, :, group.queries].float()).sum(-1, keepdim=True)
            slope = slope.mul_(weights)
            changes.append(_bias_gradient(slope, bias) if bias.requires_grad else None)
            part = slope.mul_(scale).to(q.dtype)
            dq[:, :, group.queries] = part @ _gather(tk, group)
            _scatter(dk, group, part.mT @ tq[:, :, group.queries])
        found = (_untiled(x.to(q.dtype), q) for x in (dq, dk, dv))
        return (*found, None, None, None, None, *changes)


def _tiled(x: Tensor, size: int, share: bool) -> Tensor:
    """(B, H, T, D) as (X, H, F, S, D), with zeros after the last token of a sequence."""
    x = F.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))
    return x.contiguous() if share else x.transpose(0, 1).flatten(1, 2)[None]


def _untiled(x: Tensor, like: Tensor) -> Tensor:
    """(X, H, F, S, D) as (B, H, T, D)."""
    x = x if len(x) == len(like) else x[0].unflatten(1, (len(like), -1)).transpose(0, 1)
    return x.flatten(2, 3)[:, :, : like.shape[2]]


def _gather(x: Tensor, group: Group) -> Tensor:
    """(X, H, Q, K·S, D): the keys or values that each tile of queries sees."""
    found = x.index_select(2, group.keys.flatten())
    return found.view(*x.shape[:2], len(group.queries), -1, x.shape[-1])


def _scatter(total: Tensor, group: Group, x: Tensor) -> None:
    """Add (X, H, Q, K·S, D) to the tiles that it belongs to."""
    x = x.reshape(*x.shape[:2], -1, *total.shape[3:])
    total.index_add_(2, group.keys.flatten(), x.float())


def _weights(tq: Tensor, tk: Tensor, group: Group, bias: Tensor, scale: float) -> Tensor:
    """(X, H, Q, S, K·S) in float32."""
    scores = (tq[:, :, group.queries] @ _gather(tk, group).mT).float().mul_(scale)
    bias = bias.transpose(0, 1)
    scores = scores.masked_fill_(~bias, -torch.inf) if bias.dtype == torch.bool else scores.add_(bias)
    return scores.softmax(-1)


def _dropped(weights: Tensor, dropout: float, seed: int) -> Tensor:
    """The same weights are dropped in the forward and the backward pass."""
    if not dropout:
        return weights
    generator = torch.Generator(weights.device).manual_seed(seed)
    kept = torch.empty(weights.shape, device=weights.device).bernoulli_(1 - dropout, generator=generator)
    return weights * kept.div_(1 - dropout).to(weights.dtype)


def _bias_gradient(slope: Tensor, bias: Tensor) -> Tensor:
    """(Q, 1 or H, S, K·S)"""
    found = slope.sum(0).transpose(0, 1)
    return found.sum(1, keepdim=True) if bias.shape[1] == 1 else found
