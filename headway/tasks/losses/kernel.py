"""Cross-entropy and its gradient in one Triton kernel; imported only where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def loss_and_gradient(logits, targets, losses, vocab, width, ignore, label_smoothing, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program a row of scores: its loss, then the gradient in place of the row.

    `label_smoothing` of the target goes to all of the vocabulary alike.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * width
    target = tl.load(targets + row)
    counted = target != ignore
    top = -float("inf")
    total = 0.0
    whole = 0.0
    for start in range(0, vocab, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher))
        top = higher
        whole += tl.sum(tl.where(column < vocab, x, 0.0))
    log_sum = top + tl.log(total)
    chosen = tl.load(logits + tl.where(counted, target, 0)).to(tl.float32)
    loss = log_sum - (1.0 - label_smoothing) * chosen - label_smoothing * whole / vocab
    tl.store(losses + row, tl.where(counted, loss, 0.0))
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
        gradient = (
            tl.exp(x - log_sum) - tl.where(column == target, 1.0 - label_smoothing, 0.0) - label_smoothing / vocab
        )
        gradient = tl.where(counted & (column < vocab), gradient, 0.0)
        tl.store(logits + column, gradient.to(logits.dtype.element_ty), mask=column < width)


@triton.jit  # type: ignore[untyped-decorator]
def r_drop_loss_and_gradient(  # type: ignore[no-untyped-def]
    logits, targets, losses, rows, vocab, width, ignore, label_smoothing, weight, BLOCK: tl.constexpr
):
    """One program for a row of each of two passes, p and q: the mean of their losses and `weight` times the mean of
    KL(p ‖ q) and KL(q ‖ p), then the gradients in place of both rows."""
    row = tl.program_id(0).to(tl.int64)
    second = logits + (row + rows) * width
    logits += row * width
    target = tl.load(targets + row)
    counted = target != ignore
    p_top = -float("inf")
    q_top = -float("inf")
    p_total = 0.0
    q_total = 0.0
    whole = 0.0
    for start in range(0, vocab, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
        y = tl.load(second + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
        p_higher = tl.maximum(p_top, tl.max(x))
        q_higher = tl.maximum(q_top, tl.max(y))
        p_total = p_total * tl.exp(p_top - p_higher) + tl.sum(tl.exp(x - p_higher))
        q_total = q_total * tl.exp(q_top - q_higher) + tl.sum(tl.exp(y - q_higher))
        p_top = p_higher
        q_top = q_higher
        whole += tl.sum(tl.where(column < vocab, x + y, 0.0))
    p_sum = p_top + tl.log(p_total)
    q_sum = q_top + tl.log(q_total)
    there = 0.0
    back = 0.0
    for start in range(0, vocab, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits + column, mask=column < vocab, other=-float("inf")).to(tl.float32) - p_sum
        y = tl.load(second + column, mask=column < vocab, other=-float("inf")).to(tl.float32) - q_sum
        apart = tl.where(column < vocab, x - y, 0.0)
        there += tl.sum(tl.exp(x) * apart)  # KL(p ‖ q)
        back -= tl.sum(tl.exp(y) * apart)  # KL(q ‖ p)
    at = tl.where(counted, target, 0)
    chosen = tl.load(logits + at).to(tl.float32) + tl.load(second + at).to(tl.float32)
    loss = p_sum + q_sum - (1.0 - label_smoothing) * chosen - label_smoothing * whole / vocab + weight * (there + back)
    tl.store(losses + row, tl.where(counted, loss / 2, 0.0))
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        real = counted & (column < vocab)
        x = tl.load(logits + column, mask=column < vocab, other=-float("inf")).to(tl.float32) - p_sum
        y = tl.load(second + column, mask=column < vocab, other=-float("inf")).to(tl.float32) - q_sum
        p = tl.exp(x)
        q = tl.exp(y)
        apart = tl.where(column < vocab, x - y, 0.0)
        aim = tl.where(column == target, 1.0 - label_smoothing, 0.0) + label_smoothing / vocab
        to_x = p - aim + weight * (p * (apart - there) + p - q)
        to_y = q - aim + weight * (q * (-apart - back) + q - p)
        tl.store(logits + column, tl.where(real, to_x / 2, 0.0).to(logits.dtype.element_ty), mask=column < width)
        tl.store(second + column, tl.where(real, to_y / 2, 0.0).to(logits.dtype.element_ty), mask=column < width)
