"""Decoding on an NVIDIA GPU: unpadded prefill, and a step of every sequence as one CUDA graph.

Letters: B sequences, N prompt tokens, V vocabulary, G key-value heads, D width of a head, S columns of the KV cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cuda.graphs import capture_graph
from headway.generate.accel.cuda.ops import Attention, power_of_two, through, vector_product
from headway.generate.accel.cuda.prefill import PromptPass
from headway.generate.accel.passes import SIZES, split_passes
from headway.model.masks import Layout
from headway.model.model import Transformer

PROCESSORS = 132
"""Streaming multiprocessors of an H100 or H200: a step's attention is split into about as many parts."""


class CudaDecoder(FastDecoder):
    """Triton kernels and CUDA graphs."""

    runs_ahead = True

    def __init__(self, model: Transformer, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        super().__init__(model, keys, values)
        stack, columns, device = self.stack, self.columns, self.ids.device
        self.group = stack.n_heads // stack.kv_heads
        share = columns * self.rows * stack.kv_heads // PROCESSORS
        self.split = min(1024, max(64, power_of_two(share + 1) // 2))
        """Columns per program of a step's attention."""
        self.parts = -(-columns // self.split)
        self.mixed = torch.empty(self.rows, stack.n_heads, self.parts, self.width, device=device)
        self.peaks = torch.empty(self.rows, stack.n_heads, self.parts, device=device)
        self.sums = torch.empty_like(self.peaks)
        self.argmax = self.ids
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits = torch.empty(0)
        self._passes: dict[int, PromptPass] = {}

    def forget(self) -> None:
        self._graph = None
        self._passes.clear()

    def prefill(self, new: Mapping[int, tuple[int, Sequence[int]]]) -> Tensor:
        found: dict[int, Tensor] = {}
        for part in split_passes(new):
            size = next(size for size in SIZES if sum(len(new) for _, _, new, _ in part) <= size)
            if size not in self._passes:
                self._passes[size] = PromptPass(self, size)
            logits = self._passes[size](part)
            found |= {row: logits[place] for place, (row, _, _, whole) in enumerate(part) if whole}
        return torch.stack([found[row] for row in new])

    def step(self, rows: Sequence[int] | None = None) -> Tensor:
        """All rows: that takes no longer than some."""
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        self._graph.replay()
        return self._logits

    def _capture(self) -> None:
        end = self.end.clone()
        self._graph, self._logits = capture_graph(self._step)
        self.end.copy_(end)

    def _step(self) -> Tensor:
        x = self.front(self.ids[:, None], layout=Layout(self.end.long()[:, None], None, 0)).x[:, 0]
        logits = self._single_row(x) if len(x) == 1 else self.head(self.through(x, self._attend))
        highest, tokens = logits.max(-1)
        self.argmax = tokens.where(highest > -torch.inf, -1)
        torch.clamp(self.end + 1, max=self.columns - 1, out=self.end)
        return logits

    def _single_row(self, x: Tensor) -> Tensor:
        """Matrix-vector products, with norms, activations and residuals inside the kernels."""
        for layer, block in enumerate(self.blocks):
            attention, ffn = block.attention, block.ffn
            qkv = vector_product(x, attention.qkv, norm=block.residual1.norm)
            x = vector_product(self._attend(layer, qkv), attention.out, add=x)
            hidden = vector_product(x, ffn.up, norm=block.residual2.norm, act=ffn.activation, gated=ffn.gated)
            x = vector_product(hidden, ffn.down, add=x)
        return self._scaled(vector_product(x, self.lm.output, norm=self.norm))

    def through(self, x: Tensor, attend: Attention) -> Tensor:
        return through(self.blocks, self.norm, x, attend)

    def head(self, x: Tensor) -> Tensor:
        """Logits from hidden states after the final norm."""
        return self._scaled(self.lm.output(x))

    def _scaled(self, logits: Tensor) -> Tensor:
        logits, scale = logits[:, : self.lm.vocab], self.lm.config.scale
        return logits if scale == 1.0 else logits * scale

    def _attend(self, layer: int, qkv: Tensor) -> Tensor:
        """Attention of one new token per row."""
        from headway.generate.accel.cuda import kernels

        stack, keys, one = self.stack, self.keys[layer], self.parts == 1
        out = torch.empty(self.rows, stack.n_heads * self.width, device=qkv.device, dtype=qkv.dtype)
        kernels.attend[(self.rows, stack.kv_heads, self.parts)](
            qkv, keys, self.values[layer], *(self.angles or (qkv, qkv)), self.end,
            out if one else self.mixed, self.peaks, self.sums, keys.stride(0), keys.stride(1), self.scale,
            G=stack.kv_heads, R=self.group, D=self.width, HALF=max(16, power_of_two(self.width // 2)),
            WIDE_R=max(16, power_of_two(self.group)), ROTARY=self.angles is not None, SPLIT=self.split,
            SPLITS=self.parts, BLOCK=64, num_warps=2 if self.rows > 8 else 4,
        )  # fmt: skip
        if not one:
            kernels.merge[(self.rows * stack.n_heads,)](
                self.mixed, self.peaks, self.sums, out,
                D=self.width, WIDE_D=power_of_two(self.width), SPLITS=self.parts, WIDE=power_of_two(self.parts),
                num_warps=2,
            )  # fmt: skip
        return out
