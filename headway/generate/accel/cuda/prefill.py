"""Prefill without padding: tokens of several prompts side by side, in passes of a few sizes.

A pass of one size is captured once as a CUDA graph. Tokens and positions are copied in before each replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headway.generate.accel.cuda.graphs import capture_graph
from headway.generate.accel.cuda.ops import power_of_two
from headway.generate.accel.passes import SEQUENCES, Piece
from headway.model.masks import Layout

if TYPE_CHECKING:
    from headway.generate.accel.cuda.decoder import CudaDecoder

BLOCK = 64
"""Queries per program of the attention."""


class PromptPass:
    """A forward pass of one size, captured."""

    def __init__(self, decoder: CudaDecoder, size: int) -> None:
        self.decoder, self.size, self.blocks = decoder, size, size // BLOCK + SEQUENCES
        shares = [size, size, size, SEQUENCES + 1, SEQUENCES, SEQUENCES, 2 * self.blocks]
        self.table = torch.zeros(sum(shares), dtype=torch.long, device=decoder.ids.device)
        self.ids, self.rows, self.columns, self.starts, self.cache_rows, self.held, self.where = self.table.split(
            shares
        )
        self.ends = np.cumsum(shares)[:-1]
        self._fill([])
        self._graph, self._logits = capture_graph(self._work)

    def __call__(self, pieces: list[Piece]) -> Tensor:
        """Logits (SEQUENCES, V) after the last token of each piece. Rows past the pieces are meaningless."""
        self._fill(pieces)
        self._graph.replay()
        return self._logits.clone()

    def _fill(self, pieces: list[Piece]) -> None:
        spare = self.decoder.columns - 1
        table = np.zeros(len(self.table), dtype=np.int64)
        ids, rows, columns, starts, cache_rows, held, where = np.split(table, self.ends)
        columns[:], where[:] = spare, -1
        at = block = 0
        for place, (row, before, new, _) in enumerate(pieces):
            end = at + len(new)
            ids[at:end], rows[at:end], columns[at:end] = new, row, range(before, before + len(new))
            cache_rows[place], held[place], starts[place + 1 :], at = row, before, end, end
            for begin in range(0, len(new), BLOCK):
                where[2 * block : 2 * block + 2] = place, begin
                block += 1
        self.table.copy_(torch.from_numpy(table).pin_memory(), non_blocking=True)

    def _work(self) -> Tensor:
        decoder = self.decoder
        x = decoder.front(self.ids[:, None], layout=Layout(self.columns[:, None], None, 0)).x[:, 0]
        x = decoder.through(x, self._attend)
        return decoder.head(x[(self.starts[1:] - 1).clamp(min=0)])

    def _attend(self, layer: int, qkv: Tensor) -> Tensor:
        """Write keys and values to the KV cache, then attend causally."""
        from headway.generate.accel.cuda import kernels

        decoder, stack = self.decoder, self.decoder.stack
        keys, values = decoder.keys[layer], decoder.values[layer]
        heads, groups, width = stack.n_heads, stack.kv_heads, decoder.width
        kernels.place[(self.size, heads + 2 * groups)](
            qkv, keys, values, *(decoder.angles or (qkv, qkv)), self.rows, self.columns, keys.stride(0), keys.stride(1),
            H=heads, G=groups, D=width, HALF=power_of_two(width // 2), ROTARY=decoder.angles is not None, num_warps=1,
        )  # fmt: skip
        out = torch.zeros(self.size, heads * width, device=qkv.device, dtype=qkv.dtype)
        kernels.attend_prompts[(self.blocks, heads)](
            qkv, keys, values, out, self.where, self.starts, self.cache_rows, self.held, keys.stride(0), keys.stride(1),
            decoder.scale,
            H=heads, G=groups, D=width, WIDE_D=max(16, power_of_two(width)), BLOCK_M=BLOCK, BLOCK_N=64, num_warps=4,
        )  # fmt: skip
        return out
