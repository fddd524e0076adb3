"""Losses as a sum and a count, divided once by whoever has seen all of the batch.

Letters: N positions, M width of the model, R rows of the output matrix, V vocabulary (R rounds it up).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.batching.packing import IGNORE
from headway.model.heads import LMHead

__all__ = ["IGNORE", "disagreement", "token_loss", "twice_loss", "widened"]


def token_loss(head: LMHead, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the targets (…) under the head's scores of hidden (…, M): sum and number of those counted.

    `smoothing` is the share of each target that goes to all tokens alike.
    """
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    count = (targets != IGNORE).sum()
    if _fast(hidden):
        return _fused(head, hidden, targets, smoothing, 0.0), count
    if smoothing:
        return _smoothed(head, hidden, targets, smoothing), count
    return F.cross_entropy(widened(head.wide(hidden)), targets, ignore_index=IGNORE, reduction="sum"), count


def twice_loss(head: LMHead, hidden: Tensor, targets: Tensor, smoothing: float, weight: float) -> tuple[Tensor, Tensor]:
    """Of two passes over the same texts, side by side in hidden (2 …, M), that differ by their dropout (Liang et al.
    2021): the mean of their losses, and `weight` times how much they disagree. Sum and count as above."""
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    counted = targets != IGNORE
    if _fast(hidden):
        return _fused(head, hidden, targets, smoothing, weight), counted.sum()
    first, second = widened(head.wide(hidden)).log_softmax(-1)[:, : head.vocab].chunk(2)
    both = _spread(first, targets, smoothing) + _spread(second, targets, smoothing)
    losses = both / 2 + weight * disagreement(first, second)
    return losses.masked_fill(~counted, 0.0).sum(), counted.sum()


def _fused(head: LMHead, hidden: Tensor, targets: Tensor, smoothing: float, agreement: float) -> Tensor:
    x = head.features(hidden)
    weight, bias = (None if p is None else p.to(x.dtype) for p in (head.output.weight, head.output.bias))
    losses: Tensor = linear_cross_entropy(x, weight, bias, targets, head.vocab, smoothing, agreement)[0]
    return losses.sum()


def disagreement(p: Tensor, q: Tensor) -> Tensor:
    """The mean of KL(p ‖ q) and KL(q ‖ p) by log-probabilities (N, V); (N,)."""
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2


def _smoothed(head: LMHead, hidden: Tensor, targets: Tensor, share: float) -> Tensor:
    """Rows that only round the vocabulary up score -inf, which torch's own smoothing would count."""
    logp = widened(head.wide(hidden)).log_softmax(-1)[:, : head.vocab]
    return _spread(logp, targets, share).masked_fill(targets == IGNORE, 0.0).sum()


def _spread(logp: Tensor, targets: Tensor, share: float) -> Tensor:
    """(1 - share) of the target's loss and `share` of the mean over the vocabulary, (N,)."""
    own = logp.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    return -((1 - share) * own + share * logp.mean(-1))


def widened(scores: Tensor) -> Tensor:
    """In float32 at least: a loss is a sum of many small numbers."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _fast(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and find_spec("triton") is not None


@torch.library.custom_op("headway::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, vocab: int, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor]:
    """Losses (N,) of x (N, M) under the scores x·weightᵀ + bias, and their gradient with respect to the scores.

    The gradient takes the place of the scores, in one kernel that reads and writes them once. For a vocabulary of
    50,000 they are the largest tensor of a step, and separate kernels pass over them four times. An x of 2 N rows is
    that of two passes, whose `agreement` counts as in `twice_loss`.
    """
    from headway.tasks.losses.kernel import loss_and_gradient, twice_loss_and_gradient

    scores, rows = F.linear(x, weight, bias), len(targets)
    losses = torch.empty(rows, device=x.device, dtype=torch.float32)
    shape = (vocab, scores.shape[1], IGNORE, smoothing)
    if len(x) == rows:
        loss_and_gradient[(rows,)](scores, targets, losses, *shape, BLOCK=2048, num_warps=4)
    else:
        twice_loss_and_gradient[(rows,)](scores, targets, losses, rows, *shape, agreement, BLOCK=2048, num_warps=4)
    return losses, scores


@linear_cross_entropy.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, vocab: int, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor]:
    return x.new_empty(len(targets), dtype=torch.float32), x.new_empty(len(x), len(weight))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, *_ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.has_bias = bias is not None
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad_losses: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, grad = ctx.saved_tensors
    # on the narrow side of each product, not on the scores; float32 until the product
    scale = grad_losses.repeat(len(x) // len(grad_losses))[:, None]
    to_x = ((grad @ weight) * scale).to(x.dtype)
    to_weight = grad.T @ (x * scale).to(x.dtype)
    to_bias = (grad * scale).sum(0).to(x.dtype) if ctx.has_bias else None
    return to_x, to_weight, to_bias, None, None, None, None


linear_cross_entropy.register_autograd(_backward, setup_context=_save)
