"""Triton kernels for a step of a beam search; imported only where Triton is.

Letters: B rows (inputs · W beams), G key-value heads, R query heads to each of them, D width of a head, S columns.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3e38)
"""Below every logit and above -inf, which marks tokens that do not exist."""


@triton.jit
def attend_beams(
    qkv, keys, values, held, end, out, columns, scale,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Self-attention of one head of a new token; its key and value go to column `end`.

    Keys and values are (B, G, S, D). Beams that move copy nothing: `held` (B, S) gives the row that holds each column
    of a beam. Sums do not use tensor cores, which need sixteen queries where there is one.
    """
    b, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    g, d = head // R, tl.arange(0, WIDE_D)
    real = d < D
    last = tl.load(end).to(tl.int32)
    token = qkv + b * (R * G + 2 * G) * D + d
    kind = keys.dtype.element_ty
    q = tl.load(token + head * D, mask=real, other=0.0).to(tl.float32)
    k = tl.load(token + (R * G + g) * D, mask=real, other=0.0)
    v = tl.load(token + (R * G + G + g) * D, mask=real, other=0.0)
    if head % R == 0:
        place = ((b * G + g) * columns + last) * D + d
        tl.store(keys + place, k.to(kind), mask=real)
        tl.store(values + place, v.to(kind), mask=real)
    peak = tl.sum(q * k.to(tl.float32), 0) * scale
    total = 1.0
    mean = v.to(tl.float32)
    for column in range(0, last, BLOCK):
        c = column + tl.arange(0, BLOCK)
        seen = c < last
        row = tl.load(held + b * columns + c, mask=seen, other=0).to(tl.int64)
        home = ((row * G + g) * columns + c)[:, None] * D + d[None, :]
        there = seen[:, None] & real[None, :]
        key = tl.load(keys + home, mask=there, other=0.0).to(tl.float32)
        value = tl.load(values + home, mask=there, other=0.0).to(tl.float32)
        score = tl.where(seen, tl.sum(q[None, :] * key, 1) * scale, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 0))
        weight, fade = tl.exp(score - higher), tl.exp(peak - higher)
        total = total * fade + tl.sum(weight, 0)
        mean = mean * fade + tl.sum(weight[:, None] * value, 0)
        peak = higher
    tl.store(out + (b * G * R + head) * D + d, (mean / total).to(out.dtype.element_ty), mask=real)


@triton.jit
def cross_attend(
    queries, keys, values, seen, out, columns, scale,
    W: tl.constexpr, G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Cross-attention of the W beams of a source together, for the R heads of one key-value head. Keys and values are
    (sources, G, S, D), `seen` (sources, S) is the padding mask, queries and out are (sources · W, G · R · D)."""
    source, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, d = tl.arange(0, WIDE), tl.arange(0, WIDE_D)
    at = ((source * W + i // R) * (G * R) + g * R + i % R)[:, None] * D + d[None, :]
    real = (i < W * R)[:, None] & (d < D)[None, :]
    q = tl.load(queries + at, mask=real, other=0.0)
    home = (source * G + g) * columns * D
    peak = tl.full([WIDE], -float("inf"), tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    mean = tl.zeros([WIDE, WIDE_D], tl.float32)
    for column in range(0, columns, BLOCK):
        c = column + tl.arange(0, BLOCK)
        looks = tl.load(seen + source * columns + c, mask=c < columns, other=0) != 0
        there = keys + home + c[None, :] * D + d[:, None]
        k = tl.load(there, mask=looks[None, :] & (d < D)[:, None], other=0.0)
        score = tl.dot(q, k, input_precision="ieee") * scale
        score = tl.where(looks[None, :], score, -float("inf"))
        higher = tl.maximum(tl.maximum(peak, tl.max(score, 1)), -1e30)  # a block may be all padding
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(peak - higher)
        total = total * fade + tl.sum(weight, 1)
        cell = values + home + c[:, None] * D + d[None, :]
        v = tl.load(cell, mask=looks[:, None] & (d < D)[None, :], other=0.0)
        mean = mean * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        peak = higher
    tl.store(out + at, (mean / total[:, None]).to(out.dtype.element_ty), mask=real)


@triton.jit
def usable(logits, allowed, v, here):
    """Logits of tokens v for comparison: LOWEST if not allowed, -inf if they do not exist."""
    x = tl.load(logits + v, mask=here, other=-float("inf")).to(tl.float32)
    may = tl.load(allowed + v, mask=here, other=0) != 0
    return x, tl.where(here, tl.where(may, tl.maximum(x, LOWEST), LOWEST), -float("inf"))


@triton.jit
def best_of_row(
    logits, allowed, values, tokens, row_stride, vocab, BEST: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Log-probabilities and ids of the BEST tokens of a row among those that are allowed, the best first.

    The row is read once, as PARTS parts of BLOCK tokens; only the highest logit at each place is kept. The best tokens
    are at the BEST places with the highest of these, so few logits are left to compare.
    """
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    logits += row * row_stride
    highest = tl.full([BLOCK], -float("inf"), tl.float32)
    peak = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, vocab, BLOCK):
        v = begin + place
        x, choice = usable(logits, allowed, v, v < vocab)
        highest = tl.maximum(highest, choice)
        less = tl.exp(-tl.abs(x - peak))
        total = tl.where(x > peak, total * less + 1.0, total + less)
        peak = tl.maximum(peak, x)
    top = tl.max(peak, 0)
    whole = top + tl.log(tl.sum(total * tl.exp(peak - top), 0))
    i = tl.arange(0, WIDE)
    places = tl.zeros([WIDE], tl.int32)
    for n in range(BEST):
        _, at = tl.max(highest, 0, return_indices=True)
        places = tl.where(i == n, at, places)
        highest = tl.where(place == at, -float("inf"), highest)
    v = places[:, None] + tl.arange(0, PARTS)[None, :] * BLOCK
    _, choice = usable(logits, allowed, v, (i < BEST)[:, None] & (v < vocab))
    left, v, cell = tl.ravel(choice), tl.ravel(v), tl.arange(0, WIDE * PARTS)
    for n in range(BEST):
        value, at = tl.max(left, 0, return_indices=True)
        value = tl.where(value > LOWEST, value - whole, -float("inf"))
        tl.store(values + row * BEST + n, value)
        tl.store(tokens + row * BEST + n, tl.sum(tl.where(cell == at, v, 0), 0))
        left = tl.where(cell == at, -float("inf"), left)
