"""Triton kernels for one decoding step; imported only where Triton is.

A step reads every weight once and does little else, so what counts is that memory is never idle: few kernels, for
one text with norms, activations and residuals inside those that read a matrix, and attention that reads only what a
text has.
Letters: B texts, N outputs, K inputs, G key-value heads, R query heads to each of them, D width of a head.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == "relu":
        x = tl.maximum(x, 0.0)
    elif KIND == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif KIND == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2.0 * inner)
    elif KIND == "silu":
        x = x * tl.sigmoid(x)
    elif KIND == "tanh":
        x = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    return x


@triton.jit
def vector_product(
    x, weight, bias, gain, shift, residual, out, N, K, eps, offset,
    NORM: tl.constexpr, ACT: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDE_K: tl.constexpr,
):  # fmt: skip
    """out = act(W · norm(x) + bias) + residual for one x (K,); a program computes BLOCK_N of the N outputs.

    GATED: W has N gates and then N values, out = act(gate) · value.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < N
    row = n.to(tl.int64)[:, None] * K
    mean, scale = 0.0, 1.0
    if NORM == "layernorm":
        at = tl.arange(0, WIDE_K)
        whole = tl.load(x + at, mask=at < K, other=0.0).to(tl.float32)
        mean = tl.sum(whole) / K
        away = tl.where(at < K, whole - mean, 0.0)
        scale = tl.rsqrt(tl.sum(away * away) / K + eps)
    total = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    gate = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    squares = tl.zeros([BLOCK_K], tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        here = inside[:, None] & (k < K)[None, :]
        part = tl.load(weight + row + k[None, :], mask=here, other=0.0)
        v = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
        if NORM == "rmsnorm":  # dividing by the root can wait until the end
            squares += v * v
            v *= tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32) + offset
        if NORM == "layernorm":
            v = (v - mean) * scale * tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32)
            v += tl.load(shift + k, mask=k < K, other=0.0).to(tl.float32)
        if GATED:
            gate += part.to(tl.float32) * v[None, :]
            part = tl.load(weight + row + N * K + k[None, :], mask=here, other=0.0)
        total += part.to(tl.float32) * v[None, :]
    y = tl.sum(total, 1)
    if NORM == "rmsnorm":
        scale = tl.rsqrt(tl.sum(squares) / K + eps)
        y *= scale
    if GATED:
        z = tl.sum(gate, 1)
        if NORM == "rmsnorm":
            z *= scale
        if BIAS:
            z += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
            y += tl.load(bias + N + n, mask=inside, other=0.0).to(tl.float32)
        y = activate(z, ACT) * y
    else:
        if BIAS:
            y += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
        y = activate(y, ACT)
    if ADD:
        y += tl.load(residual + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + n, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_and_norm(x, y, gain, shift, out, K, eps, offset, ADD: tl.constexpr, NORM: tl.constexpr, WIDE_K: tl.constexpr):
    """x += y in its place, and out = norm(x), for one row of several."""
    at = tl.program_id(0).to(tl.int64) * K + tl.arange(0, WIDE_K)
    k = tl.arange(0, WIDE_K)
    v = tl.load(x + at, mask=k < K, other=0.0).to(tl.float32)
    if ADD:
        v = (v + tl.load(y + at, mask=k < K, other=0.0).to(tl.float32)).to(x.dtype.element_ty)
        tl.store(x + at, v, mask=k < K)
        v = v.to(tl.float32)
    g = tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32) + offset
    if NORM == "layernorm":
        v = tl.where(k < K, v - tl.sum(v) / K, 0.0)
    v *= tl.rsqrt(tl.sum(v * v) / K + eps) * g
    if NORM == "layernorm":
        v += tl.load(shift + k, mask=k < K, other=0.0).to(tl.float32)
    tl.store(out + at, v.to(out.dtype.element_ty), mask=k < K)


@triton.jit
def gate_values(x, out, N, ACT: tl.constexpr, GATED: tl.constexpr, BLOCK: tl.constexpr):
    """act(x), or act(gate) · value of rows that have N gates and then N values."""
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x += row * N * (2 if GATED else 1)
    y = activate(tl.load(x + n, mask=n < N, other=0.0).to(tl.float32), ACT)
    if GATED:
        y *= tl.load(x + N + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, y.to(out.dtype.element_ty), mask=n < N)


@triton.jit
def attend(
    qkv, keys, values, cos, sin, begin, end, out, peaks, sums, row_stride, head_stride, scale,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, WIDE_R: tl.constexpr,
    ROTARY: tl.constexpr, SPLIT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A new token looks at its text and at itself, and takes its place there, in column end[b].

    A program has one key-value head and a part of the columns begin[b] … end[b]; keys and values are (B, G, S, D) with
    columns side by side. With one part the result is final, otherwise `merge` puts the parts together. Heads are
    held in two halves of HALF ≥ D / 2, as rotations pair them.
    """
    b, g, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, last = tl.load(begin + b), tl.load(end + b)
    low = part * SPLIT
    high = tl.minimum(low + SPLIT, last)
    r, d, w = tl.arange(0, WIDE_R), tl.arange(0, HALF), tl.arange(0, 2 * HALF)
    token = qkv + b * (R * G + 2 * G) * D
    look = (r < R)[:, None] & (d < D // 2)[None, :]
    at = token + (g * R + r)[:, None] * D + d[None, :]
    q1 = tl.load(at, mask=look, other=0.0).to(tl.float32)
    q2 = tl.load(at + D // 2, mask=look, other=0.0).to(tl.float32)
    own = token + (R * G + g) * D + d
    k1 = tl.load(own, mask=d < D // 2, other=0.0).to(tl.float32)
    k2 = tl.load(own + D // 2, mask=d < D // 2, other=0.0).to(tl.float32)
    v = tl.load(token + (R * G + G + g) * D + w, mask=w < D, other=0.0).to(tl.float32)
    if ROTARY:
        angle = (last - first) * (D // 2) + d
        x = tl.load(cos + angle, mask=d < D // 2, other=0.0)
        y = tl.load(sin + angle, mask=d < D // 2, other=0.0)
        q1, q2 = q1 * x[None, :] - q2 * y[None, :], q2 * x[None, :] + q1 * y[None, :]
        k1, k2 = k1 * x - k2 * y, k2 * x + k1 * y
    kind = keys.dtype.element_ty
    q1, q2, k1, k2 = q1.to(kind), q2.to(kind), k1.to(kind), k2.to(kind)
    slot = b.to(tl.int64) * row_stride + g.to(tl.int64) * head_stride
    newest = last // SPLIT == part
    peak = tl.full([WIDE_R], -float("inf"), tl.float32)
    total = tl.zeros([WIDE_R], tl.float32)
    mean = tl.zeros([WIDE_R, 2 * HALF], tl.float32)
    if newest:  # this part has the new token
        place = keys + slot + last * D + d
        tl.store(place, k1, mask=d < D // 2)
        tl.store(place + D // 2, k2, mask=d < D // 2)
        tl.store(values + slot + last * D + w, v.to(kind), mask=w < D)
        score = tl.sum(q1.to(tl.float32) * k1.to(tl.float32)[None, :], 1)
        score += tl.sum(q2.to(tl.float32) * k2.to(tl.float32)[None, :], 1)
        peak = score * scale
        total = total + 1.0
        mean = mean + v[None, :]
    start = tl.maximum(low, first // BLOCK * BLOCK)
    for column in range(start, high, BLOCK):
        c = column + tl.arange(0, BLOCK)
        seen = (c >= first) & (c < high)
        there = keys + slot + c[None, :] * D + d[:, None]
        both = seen[None, :] & (d < D // 2)[:, None]
        score = tl.dot(q1, tl.load(there, mask=both, other=0.0))
        score = tl.dot(q2, tl.load(there + D // 2, mask=both, other=0.0), score)
        score = tl.where(seen[None, :], score * scale, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        weight = tl.exp(score - safe[:, None])
        fade = tl.exp(peak - safe)
        total = total * fade + tl.sum(weight, 1)
        cell = values + slot + c[:, None] * D + w[None, :]
        content = tl.load(cell, mask=seen[:, None] & (w < D)[None, :], other=0.0)
        mean = mean * fade[:, None] + tl.dot(weight.to(kind), content)
        peak = higher
    head = (b * G + g) * R + r
    goal = (r < R)[:, None] & (w < D)[None, :]
    if SPLITS == 1:
        result = mean / total[:, None]
        tl.store(out + head[:, None] * D + w[None, :], result.to(out.dtype.element_ty), mask=goal)
    else:
        tl.store(out + (head * SPLITS + part)[:, None] * D + w[None, :], mean, mask=goal)
        tl.store(peaks + head * SPLITS + part, peak, mask=r < R)
        tl.store(sums + head * SPLITS + part, total, mask=r < R)


@triton.jit
def merge(parts, peaks, sums, out, D: tl.constexpr, WIDE_D: tl.constexpr, SPLITS: tl.constexpr, WIDE: tl.constexpr):
    """What the parts of a text's columns add up to, for one head."""
    head = tl.program_id(0)
    p, d = tl.arange(0, WIDE), tl.arange(0, WIDE_D)
    peak = tl.load(peaks + head * SPLITS + p, mask=p < SPLITS, other=-float("inf"))
    weight = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(tl.load(sums + head * SPLITS + p, mask=p < SPLITS, other=0.0) * weight, 0)
    cells = parts + (head * SPLITS + p)[:, None] * D + d[None, :]
    mean = tl.load(cells, mask=(p < SPLITS)[:, None] & (d < D)[None, :], other=0.0)
    mean = tl.sum(tl.where(weight[:, None] > 0, mean * weight[:, None], 0.0), 0) / total
    tl.store(out + head * D + d, mean.to(out.dtype.element_ty), mask=d < D)
