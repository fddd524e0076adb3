"""One decoding step on a CPU, in Python that Numba compiles; imported only where Numba is.

A step reads every weight once and computes little, so all cores must read without a pause between two matrices: norms,
activations and residuals happen inside the matrix kernels. Weights are float32, or int8 with a scale for each row. A
sequence does not depend on its batch: products sum in a fixed order (`lanes`), all else is done row by row.
Letters: B sequences, N outputs, K inputs, G key-value heads, R query heads to each of them, D width of a head.
"""

# mypy: ignore-errors
from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import njit, prange

from headway.generate.accel.cpu.lanes import tile

F = np.float32
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "tanh")
RELU, GELU, GELU_TANH, SILU, TANH = 1, 2, 3, 4, 5
LAYERNORM, RMSNORM = 1, 2
BLOCK = 32
"""Outputs that a thread computes before it takes more work."""
TILE = 4
"""Rows of the input that a thread keeps in registers meanwhile."""
MANY = 16
"""Batch size from which two rows of a matrix are read at a time: then arithmetic takes the time, not memory."""

exact = partial(njit, nogil=True, error_model="numpy", cache=True)
# Sums may be reordered, which vectors need; NaN stays NaN.
compiled = partial(exact, fastmath={"reassoc", "contract", "arcp", "nsz"})

one_by_one, one_by_four, two_by_four = tile(1, 1), tile(1, 4), tile(2, 4)


@compiled()
def sigmoid(x):
    return F(1) / (F(1) + F(math.exp(-x)))


@compiled()
def activate(x, kind):
    if kind == RELU:
        return max(x, F(0))
    if kind == GELU:
        return F(0.5) * x * (F(1) + F(math.erf(x * F(0.7071067811865476))))
    if kind == GELU_TANH:
        return x * sigmoid(F(1.5957691216057308) * (x + F(0.044715) * x * x * x))
    if kind == SILU:
        return x * sigmoid(x)
    if kind == TANH:
        return F(math.tanh(x))
    return x


@compiled()
def normalise(x, gain, shift, eps, offset, kind, out):
    """Rows of x (B, K)."""
    width = x.shape[1]
    for b in range(len(x)):
        mean = F(0)
        if kind == LAYERNORM:
            for k in range(width):
                mean += x[b, k]
            mean /= F(width)
        squares = F(0)
        for k in range(width):
            squares += (x[b, k] - mean) * (x[b, k] - mean)
        scale = F(1) / F(math.sqrt(squares / F(width) + eps))
        for k in range(width):
            out[b, k] = (x[b, k] - mean) * scale * (gain[k] + offset) + shift[k]


@compiled()
def dot(row, x):
    total = F(0)
    for k in range(len(x)):
        total += F(row[k]) * x[k]
    return total


@exact()
def sums(x, weight, begin, end, first, out, outset):
    """Up to four rows of x from `first` on by rows `begin` … `end` of a matrix, to out[:, outset …]."""
    rows, count = min(TILE, len(x) - first), end - begin
    if rows < TILE:  # one stream at a time is read fastest
        for b in range(rows):
            for n in range(count):
                out[b, outset + n] = one_by_one(weight, begin + n, x, first + b)[0]
        return
    pairs = count // 2 * 2 if len(x) >= MANY else 0
    for n in range(0, pairs, 2):
        a, b, c, d, e, f, g, h = two_by_four(weight, begin + n, x, first)
        at, to = outset + n, outset + n + 1
        out[0, at], out[1, at], out[2, at], out[3, at] = a, b, c, d
        out[0, to], out[1, to], out[2, to], out[3, to] = e, f, g, h
    for n in range(pairs, count):
        a, b, c, d = one_by_four(weight, begin + n, x, first)
        out[0, outset + n], out[1, outset + n], out[2, outset + n], out[3, outset + n] = a, b, c, d


@compiled()
def finish(y, scale, bias, act):
    """act(y · scale + bias) in place, for a row."""
    for n in range(len(y)):
        y[n] = y[n] * scale[n] + bias[n]
    if act == RELU:
        for n in range(len(y)):
            y[n] = max(y[n], F(0))
    elif act:
        for n in range(len(y)):
            y[n] = activate(y[n], act)


@compiled()
def some(x, weight, scale, bias, act, gated, residual, add, out, begin, end):
    """Outputs `begin` to `end` of `product`, a tile of rows at a time."""
    outputs = out.shape[1]
    values = np.empty((TILE, end - begin), F)
    for first in range(0, len(x), TILE):
        here = out[first : first + TILE]
        sums(x, weight, begin, end, first, here, begin)
        if gated:
            sums(x, weight, outputs + begin, outputs + end, first, values, 0)
        for b in range(len(here)):
            y = here[b, begin:end]
            finish(y, scale[begin:end], bias[begin:end], act)
            if gated:
                low, high = outputs + begin, outputs + end
                finish(values[b], scale[low:high], bias[low:high], 0)
                for n in range(len(y)):
                    y[n] *= values[b, n]
            if add:
                more = residual[first + b, begin:end]
                for n in range(len(y)):
                    y[n] += more[n]


@compiled(parallel=True)
def product(x, gain, shift, eps, offset, norm, normed, weight, scale, bias, act, gated, residual, add, out):
    """out = act(W · norm(x) + bias) + residual, where residual is not out; if `gated`, act(gate) · value without it."""
    inputs = x
    if norm:
        normalise(x, gain, shift, eps, offset, norm, normed)
        inputs = normed
    outputs = out.shape[1]
    for block in prange((outputs + BLOCK - 1) // BLOCK):
        begin = block * BLOCK
        end = min(begin + BLOCK, outputs)
        some(inputs, weight, scale, bias, act, gated, residual, add, out, begin, end)


@compiled()
def turned(x, angles, at, rotary, out):
    """Rotate a head to one position (rotary embedding)."""
    half = len(x) // 2
    if not rotary:
        for d in range(len(x)):
            out[d] = x[d]
        return
    for d in range(half):
        cos, sin = angles[0, at, d], angles[1, at, d]
        out[d] = x[d] * cos - x[half + d] * sin
        out[half + d] = x[half + d] * cos + x[d] * sin


@compiled()
def mix(query, cells, content, held, group, first, seen, scale, cap, slope, out):
    """Attention of one query over a KV cache (rows, G, S, D); column c is in row held[c].

    Columns before `first`, and those that are not `seen`, get no weight. `cap` bounds the scores if it is not 0;
    `slope` is the penalty of a column by its distance from the last one (ALiBi).
    """
    count, width = len(seen), len(query)
    weights = np.empty(count, F)
    peak = F(-np.inf)
    for c in range(first, count):
        score = dot(cells[held[c], group, c], query) * scale
        if cap:
            score = cap * F(math.tanh(score / cap))
        weights[c] = score - slope * F(count - 1 - c) if seen[c] else F(-np.inf)
        peak = max(peak, weights[c])
    for d in range(width):
        out[d] = F(0)
    total = F(0)
    for c in range(first, count):
        if seen[c]:
            weight = F(math.exp(weights[c] - peak))
            total += weight
            here = content[held[c], group, c]
            for d in range(width):
                out[d] += weight * here[d]
    for d in range(width):
        out[d] /= total


@compiled()
def attend_head(qkv, keys, values, angles, rotary, held, last, group, scale, window, cap, slopes, out):
    """One key-value head of one new token: store key and value in column `last`, then attend up to there."""
    groups, width = keys.shape[1], keys.shape[3]
    heads = len(out) // width
    each = heads // groups
    at = (heads + group) * width
    turned(qkv[at : at + width], angles, last, rotary, keys[held[last], group, last])
    at += groups * width
    own = values[held[last], group, last]
    for d in range(width):
        own[d] = qkv[at + d]
    query, seen = np.empty(width, F), np.ones(last + 1, np.bool_)
    first = max(0, last + 1 - window) if window else 0
    for head in range(group * each, (group + 1) * each):
        at = head * width
        turned(qkv[at : at + width], angles, last, rotary, query)
        mix(query, keys, values, held, group, first, seen, scale, cap, slopes[head], out[at : at + width])


@compiled(parallel=True)
def attend(qkv, keys, values, angles, rotary, held, end, scale, window, cap, slopes, out):
    """Self-attention: new token b goes to column end[b] and attends up to there; column c is in row held[b, c].

    With a `window`, it attends to so many columns, its own included.
    """
    groups = keys.shape[1]
    for i in prange(len(qkv) * groups):
        b, g = i // groups, i % groups
        attend_head(qkv[b], keys, values, angles, rotary, held[b], end[b], g, scale, window, cap, slopes, out[b])


@compiled(parallel=True)
def cross_attend(queries, keys, values, held, seen, scale, out):
    """Cross-attention: row b attends to the encoder's row held[b, …]; seen[b] is the padding mask."""
    groups, width = keys.shape[1], keys.shape[3]
    heads = out.shape[1] // width
    for i in prange(len(queries) * heads):
        b, head = i // heads, i % heads
        at = head * width
        group = head // (heads // groups)
        query, into = queries[b, at : at + width], out[b, at : at + width]
        mix(query, keys, values, held[b], group, 0, seen[b], scale, F(0), F(0), into)


@compiled()
def norm_parts(x, begin, end, gain, shift, eps, offset, kind):
    """The norm of each part of columns `begin` to `end` of x (B, K), as wide as the gain, in place."""
    width = len(gain)
    for at in range(begin, end, width):
        part = x[:, at : at + width]
        normalise(part, gain, shift, eps, offset, kind, part)


@compiled()
def add_normed(x, gain, shift, eps, offset, kind, scale, residual, out):
    """out = residual + norm(x) · scale, of rows (B, K)."""
    normalise(x, gain, shift, eps, offset, kind, x)
    for b in range(len(x)):
        for k in range(x.shape[1]):
            out[b, k] = residual[b, k] + x[b, k] * scale


@compiled(parallel=True)
def bound(x, cap):
    """cap · tanh(x / cap) in place, of x (B, N)."""
    width = x.shape[1]
    for i in prange(len(x) * width):
        b, n = i // width, i % width
        x[b, n] = cap * F(math.tanh(x[b, n] / cap))


@compiled()
def highest(logits, out):
    """The most probable token of each row, -1 if logits are NaN."""
    for b in range(len(logits)):
        best, place = F(-np.inf), -1
        for n in range(logits.shape[1]):
            if logits[b, n] > best:
                best, place = logits[b, n], n
            elif logits[b, n] != logits[b, n]:
                place = -1
                break
        out[b] = place
