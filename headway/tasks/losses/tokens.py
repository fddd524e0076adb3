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

__all__ = ["IGNORE", "r_drop_loss", "symmetric_kl", "token_loss", "upcast"]


def token_loss(head: LMHead, hidden: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the targets (…) under the head's scores of hidden (…, M): sum and number of those counted.

    `label_smoothing` is the share of each target that goes to all tokens alike.
    """
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    count = (targets != IGNORE).sum()
    if _can_fuse(head, hidden):
        return _fused(head, hidden, targets, label_smoothing, 0.0), count
    if label_smoothing:
        return _smoothed_loss(head, hidden, targets, label_smoothing), count
    return F.cross_entropy(upcast(head.padded_logits(hidden)), targets, ignore_index=IGNORE, reduction="sum"), count


def r_drop_loss(
    head: LMHead, hidden: Tensor, targets: Tensor, label_smoothing: float, weight: float
) -> tuple[Tensor, Tensor]:
    """Of two passes over the same texts, side by side in hidden (2 …, M), that differ by their dropout (Liang et al.
    2021): the mean of their losses, and `weight` times how much they disagree. Sum and count as above."""
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    counted = targets != IGNORE
    if _can_fuse(head, hidden):
        return _fused(head, hidden, targets, label_smoothing, weight), counted.sum()
    first, second = upcast(head.padded_logits(hidden)).log_softmax(-1)[:, : head.vocab].chunk(2)
    both = _smoothed_nll(first, targets, label_smoothing) + _smoothed_nll(second, targets, label_smoothing)
    losses = both / 2 + weight * symmetric_kl(first, second)
    return losses.masked_fill(~counted, 0.0).sum(), counted.sum()


def _fused(head: LMHead, hidden: Tensor, targets: Tensor, label_smoothing: float, r_drop: float) -> Tensor:
    x = head.features(hidden)
    weight, bias = (None if p is None else p.to(x.dtype) for p in (head.output.weight, head.output.bias))
    losses: Tensor = linear_cross_entropy(x, weight, bias, targets, head.vocab, label_smoothing, r_drop)[0]
    return losses.sum()


def symmetric_kl(p: Tensor, q: Tensor) -> Tensor:
    """The mean of KL(p ‖ q) and KL(q ‖ p) by log-probabilities (N, V); (N,)."""
    return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2


def _smoothed_loss(head: LMHead, hidden: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Rows that only round the vocabulary up score -inf, which torch's own smoothing would count."""
    logp = upcast(head.padded_logits(hidden)).log_softmax(-1)[:, : head.vocab]
    return _smoothed_nll(logp, targets, label_smoothing).masked_fill(targets == IGNORE, 0.0).sum()


def _smoothed_nll(logp: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """(1 - share) of the target's loss and `label_smoothing` of the mean over the vocabulary, (N,)."""
    own = logp.gather(-1, targets.clamp(min=0)[:, None])[:, 0]
    return -((1 - label_smoothing) * own + label_smoothing * logp.mean(-1))


def upcast(logits: Tensor) -> Tensor:
    """In float32 at least: a loss is a sum of many small numbers."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _can_fuse(head: LMHead, x: Tensor) -> bool:
    if head.config.softcap is not None:  # the kernel knows no softcap
        return False
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and find_spec("triton") is not None


@torch.library.custom_op("headway::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, vocab: int, label_smoothing: float, r_drop: float
) -> tuple[Tensor, Tensor]:
    """Losses (N,) of x (N, M) under the scores x·weightᵀ + bias, and their gradient with respect to the scores.

    The gradient takes the place of the scores, in one kernel that reads and writes them once. For a vocabulary of
    50,000 they are the largest tensor of a step, and separate kernels pass over them four times. An x of 2 N rows is
    that of two passes, whose `r_drop` counts as in `r_drop_loss`.
    """
    from headway.tasks.losses.kernel import loss_and_gradient, r_drop_loss_and_gradient

    logits, rows = F.linear(x, weight, bias), len(targets)
    losses = torch.empty(rows, device=x.device, dtype=torch.float32)
    shape = (vocab, logits.shape[1], IGNORE, label_smoothing)
    if len(x) == rows:
        loss_and_gradient[(rows,)](logits, targets, losses, *shape, BLOCK=2048, num_warps=4)
    else:
        r_drop_loss_and_gradient[(rows,)](logits, targets, losses, rows, *shape, r_drop, BLOCK=2048, num_warps=4)
    return losses, logits


@linear_cross_entropy.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, vocab: int, label_smoothing: float, r_drop: float
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
