"""Triton kernels for one decoding step; imported only where Triton is.

A step reads every weight once and computes little, so memory must never be idle: few kernels; for one sequence, norms,
activations and residuals inside the matrix kernels; attention that reads only the tokens of a sequence.
Letters: B sequences, N outputs, K inputs, G key-value heads, R query heads to each of them, D width of a head.
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
    """x += y in place and out = norm(x), for one row."""
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
    """act(x), or act(gate) · value for rows of N gates and then N values."""
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x += row * N * (2 if GATED else 1)
    y = activate(tl.load(x + n, mask=n < N, other=0.0).to(tl.float32), ACT)
    if GATED:
        y *= tl.load(x + N + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, y.to(out.dtype.element_ty), mask=n < N)


@triton.jit
def turn(first, second, cos, sin, at, inside):
    """Two halves of a head, rotated by the angles of one position."""
    x = tl.load(cos + at, mask=inside, other=0.0)
    y = tl.load(sin + at, mask=inside, other=0.0)
    return first * x - second * y, second * x + first * y


@triton.jit
def attend(
    qkv, keys, values, cos, sin, end, out, peaks, sums, row_stride, head_stride, scale,
    G: tl.constexpr, R: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, WIDE_R: tl.constexpr,
    ROTARY: tl.constexpr, SPLIT: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attention of one new token per sequence; its key and value go to column end[b].

    A program has one key-value head and a part of the columns; keys and values are (B, G, S, D), contiguous in S. With
    one part the result is final, otherwise `merge` combines the parts. Heads are in two halves of HALF ≥ D / 2, as
    rotary positions pair them.
    """
    b, g, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    last = tl.load(end + b)
    low = part * SPLIT
    high = tl.minimum(low + SPLIT, last)
    r, d, w = tl.arange(0, WIDE_R), tl.arange(0, HALF), tl.arange(0, 2 * HALF)
    token = qkv + b * (R * G + 2 * G) * D
    half = d < D // 2
    look = (r < R)[:, None] & half[None, :]
    at = token + (g * R + r)[:, None] * D + d[None, :]
    q1 = tl.load(at, mask=look, other=0.0).to(tl.float32)
    q2 = tl.load(at + D // 2, mask=look, other=0.0).to(tl.float32)
    own = token + (R * G + g) * D + d
    k1 = tl.load(own, mask=half, other=0.0).to(tl.float32)
    k2 = tl.load(own + D // 2, mask=half, other=0.0).to(tl.float32)
    v = tl.load(token + (R * G + G + g) * D + w, mask=w < D, other=0.0).to(tl.float32)
    if ROTARY:
        angle = last * (D // 2) + d
        k1, k2 = turn(k1, k2, cos, sin, angle, half)
        q1, q2 = turn(q1, q2, cos, sin, angle[None, :], half[None, :])
    kind = keys.dtype.element_ty
    q1, q2, k1, k2 = q1.to(kind), q2.to(kind), k1.to(kind), k2.to(kind)
    slot = b.to(tl.int64) * row_stride + g.to(tl.int64) * head_stride
    peak = tl.full([WIDE_R], -float("inf"), tl.float32)
    total = tl.zeros([WIDE_R], tl.float32)
    mean = tl.zeros([WIDE_R, 2 * HALF], tl.float32)
    if last // SPLIT == part:  # this part holds the new token
        place = keys + slot + last * D + d
        tl.store(place, k1, mask=half)
        tl.store(place + D // 2, k2, mask=half)
        tl.store(values + slot + last * D + w, v.to(kind), mask=w < D)
        score = tl.sum(q1.to(tl.float32) * k1.to(tl.float32)[None, :], 1)
        score += tl.sum(q2.to(tl.float32) * k2.to(tl.float32)[None, :], 1)
        peak = score * scale
        total = total + 1.0
        mean = mean + v[None, :]
    for column in range(low, high, BLOCK):
        c = column + tl.arange(0, BLOCK)
        seen = c < high
        home = slot + c * D
        there = keys + home[None, :] + d[:, None]
        both = seen[None, :] & half[:, None]
        score = tl.dot(q1, tl.load(there, mask=both, other=0.0), input_precision="ieee")
        score = tl.dot(q2, tl.load(there + D // 2, mask=both, other=0.0), score, input_precision="ieee")
        score = tl.where(seen[None, :], score * scale, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(peak - higher)
        total = total * fade + tl.sum(weight, 1)
        cell = values + home[:, None] + w[None, :]
        content = tl.load(cell, mask=seen[:, None] & (w < D)[None, :], other=0.0)
        mean = mean * fade[:, None] + tl.dot(weight.to(kind), content, input_precision="ieee")
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
    """Combine the parts of a sequence's attention, for one head."""
    head = tl.program_id(0)
    p, d = tl.arange(0, WIDE), tl.arange(0, WIDE_D)
    peak = tl.load(peaks + head * SPLITS + p, mask=p < SPLITS, other=-float("inf"))
    weight = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(tl.load(sums + head * SPLITS + p, mask=p < SPLITS, other=0.0) * weight, 0)
    cells = parts + (head * SPLITS + p)[:, None] * D + d[None, :]
    mean = tl.load(cells, mask=(p < SPLITS)[:, None] & (d < D)[None, :], other=0.0)
    mean = tl.sum(tl.where(weight[:, None] > 0, mean * weight[:, None], 0.0), 0) / total
    tl.store(out + head * D + d, mean.to(out.dtype.element_ty), mask=d < D)


@triton.jit
def place(
    qkv, keys, values, cos, sin, rows, columns, row_stride, head_stride,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, ROTARY: tl.constexpr,
):  # fmt: skip
    """One head of one prompt token: rotate the query in place, write key and value to the KV cache."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, HALF)
    half = d < D // 2
    own = qkv + (token * (H + 2 * G) + head) * D + d
    a = tl.load(own, mask=half, other=0.0).to(tl.float32)
    b = tl.load(own + D // 2, mask=half, other=0.0).to(tl.float32)
    column = tl.load(columns + token)
    if (head < H + G) & ROTARY:
        a, b = turn(a, b, cos, sin, column * (D // 2) + d, half)
    kind = keys.dtype.element_ty
    goal = tl.load(rows + token) * row_stride + column * D + d
    if head < H:
        tl.store(own, a.to(kind), mask=half)
        tl.store(own + D // 2, b.to(kind), mask=half)
    elif head < H + G:
        tl.store(keys + goal + (head - H) * head_stride, a.to(kind), mask=half)
        tl.store(keys + goal + (head - H) * head_stride + D // 2, b.to(kind), mask=half)
    else:
        tl.store(values + goal + (head - H - G) * head_stride, a.to(kind), mask=half)
        tl.store(values + goal + (head - H - G) * head_stride + D // 2, b.to(kind), mask=half)


@triton.jit
def attend_prompts(
    qkv, keys, values, out, blocks, starts, cache_rows, held, row_stride, head_stride, scale,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, WIDE_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Causal attention of BLOCK_M new tokens of one sequence, for one head; their keys are in the KV cache already.

    Sequence i has the tokens starts[i] … starts[i + 1] of the pass, in row cache_rows[i] of the KV cache after held[i]
    older ones. `blocks` gives the sequence of each block, -1 for none, and its offset there.
    """
    block, head = tl.program_id(0), tl.program_id(1)
    text = tl.load(blocks + 2 * block)
    if text < 0:
        return
    first = tl.load(starts + text)
    count = tl.load(starts + text + 1) - first
    before = tl.load(held + text)
    begin = tl.load(blocks + 2 * block + 1)
    m, d = begin + tl.arange(0, BLOCK_M), tl.arange(0, WIDE_D)
    real = (m < count)[:, None] & (d < D)[None, :]
    q = tl.load(qkv + ((first + m) * (H + 2 * G) + head)[:, None] * D + d[None, :], mask=real, other=0.0)
    slot = tl.load(cache_rows + text).to(tl.int64) * row_stride + (head // (H // G)) * head_stride
    peak = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    mean = tl.zeros([BLOCK_M, WIDE_D], tl.float32)
    for column in range(0, before + tl.minimum(begin + BLOCK_M, count), BLOCK_N):
        c = column + tl.arange(0, BLOCK_N)
        there = (c < before + count)[None, :] & (d < D)[:, None]
        k = tl.load(keys + slot + c[None, :] * D + d[:, None], mask=there, other=0.0)
        score = tl.where(c[None, :] <= before + m[:, None], tl.dot(q, k) * scale, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(peak - higher)
        total = total * fade + tl.sum(weight, 1)
        v = tl.load(
            values + slot + c[:, None] * D + d[None, :],
            mask=(c < before + count)[:, None] & (d < D)[None, :],
            other=0.0,
        )
        mean = mean * fade[:, None] + tl.dot(weight.to(v.dtype), v)
        peak = higher
    goal = out + ((first + m) * H + head)[:, None] * D + d[None, :]
    tl.store(goal, (mean / total[:, None]).to(out.dtype.element_ty), mask=real)
