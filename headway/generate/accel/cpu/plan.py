"""A decoding step on a CPU: a list of kernel calls with preallocated operands.

Letters: B rows, S columns of the KV cache, V vocabulary.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.config.model import StackConfig
from headway.generate.accel.cpu import kernels
from headway.kernels.quantized import Int8Linear
from headway.model.model import Transformer
from headway.model.norms import LayerNorm, RMSNorm
from headway.model.positions import alibi_slopes, rotary_angles

Array = NDArray[Any]
Call = tuple[Callable[..., None], tuple[Any, ...]]
Matrix = nn.Linear | Int8Linear
Norm = LayerNorm | RMSNorm

NOTHING = np.zeros((1, 1), np.float32)
NO_NORM = (NOTHING[0], NOTHING[0], np.float32(0), np.float32(0), 0)
TRY = 100
"""Steps between two tries of the other number of threads."""
LOOK = 8
"""Steps over which the shortest time is taken."""


class Memory(NamedTuple):
    """Cross-attention's keys and values by layer, and for each row where they are and which columns are real."""

    keys: list[Array]
    values: list[Array]
    held: Array
    """(B, S)"""
    seen: Array
    """(B, S)"""


class Plan:
    """One step of `rows` sequences: set `held` and `end`, call `run`, read `logits`."""

    def __init__(
        self,
        model: Transformer,
        rows: int,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        memory: Memory | None = None,
    ) -> None:
        stack, lm = model.config.decoder, model.lm
        assert stack is not None
        columns, width = keys[0].shape[2:]
        self.held = np.zeros((rows, columns), np.int64)
        """(B, S): the row of the KV cache that holds each column of a sequence."""
        self.end = np.zeros(rows, np.int64)
        """(B,): the column of the next token."""
        self.calls: list[Call] = []
        self.post = stack.norm_at == "post"
        self.due: Norm | None = None
        """A post-norm that the next product applies to its input."""
        self.x = self.now = _empty(rows, stack.d_model)
        """The input, and the array that holds the residual stream after the calls so far."""
        self.other = np.empty_like(self.x)
        qkv, mixed = _empty(rows, (stack.n_heads + 2 * stack.kv_heads) * width), _empty(rows, stack.n_heads * width)
        hidden, scale = _empty(rows, stack.d_ff), np.float32(stack.scale or width**-0.5)
        places = [_places(kind, width, columns) for kind in model.decoder.kinds]
        blocks: list[Any] = list(model.decoder.blocks)
        for layer, block in enumerate(blocks):
            before = self.now
            stream = self._branch(block.attention.qkv, block.residual1, qkv)
            self._norm_heads(block.attention, qkv)
            angles, limits = places[model.decoder.kind_of[layer]]
            cache = (keys[layer].numpy(), values[layer].numpy())
            self.calls.append((kernels.attend, (qkv, *cache, *angles, self.held, self.end, scale, *limits, mixed)))
            self._join(mixed, block.attention.out, stream, block.residual1)
            if memory is not None:
                queries = np.empty_like(mixed)
                stream = self._branch(block.cross.q, block.residual_cross, queries)
                read = (memory.keys[layer], memory.values[layer], memory.held, memory.seen)
                self.calls.append((kernels.cross_attend, (queries, *read, scale, mixed)))
                self._join(mixed, block.cross.out, stream, block.residual_cross)
            act = (block.ffn.activation, block.ffn.gated)
            if block.parallel:  # both branches read what was before; the arrays are exchanged after the second
                own = block.residual1 if block.residual2.norm is None else block.residual2
                self.calls.append(_product(before, block.ffn.up, hidden, **self._read(own.norm, before)[1], act=act))
                stream = self.now
            else:
                stream = self._branch(block.ffn.up, block.residual2, hidden, act)
            self._join(hidden, block.ffn.down, stream, block.residual2)
        wide = _empty(rows, lm.output.out_features)
        final: Any = model.decoder.norm
        normed = self._read(self.due if self.post else final, self.now)[1]
        self.calls.append(_product(self.now, lm.output, wide, **normed, scale=lm.config.scale))
        self.logits = wide[:, : lm.vocab]
        """(B, V)"""
        if lm.config.softcap is not None:
            self.calls.append((kernels.bound, (self.logits, np.float32(lm.config.softcap))))

    def run(self, x: Array, pace: Pace) -> None:
        self.x[:] = x
        with pace:
            for kernel, arguments in self.calls:
                kernel(*arguments)

    def _branch(self, linear: Matrix, residual: Any, out: Array, act: tuple[str, bool] = ("none", False)) -> Array:
        """Begin a residual branch with a product. Returns the stream that the branch is added to."""
        own = None if residual.norm_at == "branch" else residual.norm
        stream, normed = self._read(self.due if self.post else own, self.now)
        self.calls.append(_product(self.now, linear, out, **normed, act=act))
        return stream if self.post else self.now

    def _read(self, norm: Norm | None, x: Array) -> tuple[Array, dict[str, Any]]:
        """The array of x after a norm, or x itself; and how to tell a product of the norm."""
        if norm is None:
            return x, {}
        normed = np.empty_like(x)
        return normed, {"norm": norm, "normed": normed}

    def _norm_heads(self, attention: Any, qkv: Array) -> None:
        """Norms of queries and keys."""
        if not hasattr(attention, "q_norm"):
            return
        queries = attention.heads * attention.width
        keys = queries + attention.groups * attention.width
        for norm, begin, end in ((attention.q_norm, 0, queries), (attention.k_norm, queries, keys)):
            self.calls.append((kernels.norm_parts, (qkv, begin, end, *_normed(norm))))

    def _join(self, x: Array, linear: Matrix, stream: Array, residual: Any) -> None:
        """End a residual branch with a product and add it to the stream."""
        after = residual.norm if residual.norm_at == "branch" else residual.after
        if after is None:
            self.calls.append(_product(x, linear, self.other, add=stream, scale=residual.factor))
        else:
            out = np.empty_like(self.other)
            self.calls.append(_product(x, linear, out))
            last = (np.float32(residual.factor), stream, self.other)
            self.calls.append((kernels.add_normed, (out, *_normed(after), *last)))
        self.now, self.other, self.due = self.other, self.now, residual.norm


def _product(
    x: Array,
    linear: Matrix,
    out: Array,
    *,
    norm: Norm | None = None,
    normed: Array = NOTHING,
    act: tuple[str, bool] = ("none", False),
    add: Array | None = None,
    scale: float = 1.0,
) -> Call:
    """The call that computes out = act((matrix · norm(x) + bias) · scale) + add."""
    factors = np.full(linear.out_features, scale, np.float32)
    if isinstance(linear, Int8Linear):
        weight = linear.matrix.weight
        factors *= linear.matrix.scale.float().numpy()
    else:
        weight = linear.weight.detach()
    bias = np.zeros_like(factors) if linear.bias is None else scale * linear.bias.detach().numpy()
    before = NO_NORM if norm is None else _normed(norm)
    after = (kernels.ACTIVATIONS.index(act[0]), act[1], NOTHING if add is None else add, add is not None)
    return kernels.product, (x, *before, normed, weight.numpy(), factors, bias, *after, out)


def _normed(norm: Norm) -> tuple[Any, ...]:
    gain = norm.weight.detach().numpy()
    if isinstance(norm, RMSNorm):
        return gain, np.zeros_like(gain), np.float32(norm.eps), np.float32(norm.offset), kernels.RMSNORM
    bias = np.zeros_like(gain) if norm.bias is None else norm.bias.detach().numpy()
    return gain, bias, np.float32(norm.eps), np.float32(0), kernels.LAYERNORM


def _places(stack: StackConfig, width: int, columns: int) -> tuple[tuple[Array, bool], tuple[Any, ...]]:
    """What tells an attention where tokens are: angles; a window, the bound of scores, slopes."""
    slopes = alibi_slopes(stack.n_heads) if stack.alibi else [0.0] * stack.n_heads
    limits = (stack.window or 0, np.float32(stack.softcap or 0), np.array(slopes, np.float32))
    return _angles(stack, width, columns), limits


def _angles(stack: StackConfig, width: int, columns: int) -> tuple[Array, bool]:
    """Cosines and sines (2, S, half a head's width), and whether the blocks have rotary positions."""
    if stack.rope is None:
        return np.zeros((2, 1, 1), np.float32), False
    found = rotary_angles(stack.rope, width, torch.arange(columns)[None])
    return torch.stack([a[0, 0] for a in found]).float().numpy(), True


def _empty(rows: int, width: int) -> Array:
    return np.empty((rows, width), np.float32)


class Pace:
    """Sets the number of threads of each step: all, or half of them if other programs use the cores too.

    A kernel waits for its slowest thread, so a thread that waits for a core delays all the others. Every TRY steps the
    other number is tried.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.begin = clock, 0.0
        self.threads: int = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
        self.steps = 0
        self.most = True
        """Whether all threads take the present step."""
        self.recent = {most: deque([0.0], maxlen=LOOK) for most in (True, False)}
        """Seconds of the last steps with all threads, and with half of them."""
        self.torch_threads = 0

    def __enter__(self) -> None:
        self.torch_threads = torch.get_num_threads()
        best = min(self.recent[True]) <= min(self.recent[False])
        self.most = best if self.steps % TRY else not best
        numba.set_num_threads(self.threads if self.most else max(1, self.threads // 2))
        self.begin = self.clock()

    def __exit__(self, *_: object) -> None:
        if self.steps % TRY == 0:
            self.recent[self.most].clear()  # it was a while ago
        self.recent[self.most].append(self.clock() - self.begin)
        if self.steps == 0 and torch.get_num_threads() != self.torch_threads:
            torch.set_num_threads(self.torch_threads)  # the first kernel starts Numba's pool, which may set torch's
        self.steps += 1
