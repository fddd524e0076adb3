"""Cross-entropy and its gradient in one Triton kernel; imported only where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def loss_and_gradient(scores, targets, losses, vocab, width, ignore, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program a row of scores: its loss, then the gradient in place of the row."""
    row = tl.program_id(0).to(tl.int64)
    scores += row * width
    target = tl.load(targets + row)
    counted = target != ignore
    top = -float("inf")
    total = 0.0
    for start in range(0, vocab, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(scores + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher))
        top = higher
    log_sum = top + tl.log(total)
    chosen = tl.load(scores + tl.where(counted, target, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(counted, log_sum - chosen, 0.0))
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(scores + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(x - log_sum) - tl.where(column == target, 1.0, 0.0)
        gradient = tl.where(counted & (column < vocab), gradient, 0.0)
        tl.store(scores + column, gradient.to(scores.dtype.element_ty), mask=column < width)
