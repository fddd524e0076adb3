"""An encoder–decoder for beam search on a CPU, with Numba kernels; beams that move copy no keys and values.

Every beam writes to its own row of the KV cache; a table says which row holds each column of a beam, and only the table
is reordered. Letters: B rows, T tokens, V vocabulary, S columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headway.generate.accel.cpu.plan import Array, Memory, Pace, Plan
from headway.generate.protocol import DecoderWrapper
from headway.model.masks import Layout
from headway.model.model import Transformer


@dataclass
class Beams:
    """The state: KV cache, the table of its rows, and the encoder memory."""

    keys: list[Tensor]
    values: list[Tensor]
    held: Array
    """(B, S): the row that holds each column of a beam."""
    length: int
    memory: Memory
    plan: Plan | None = None


class CpuBeamDecoder(DecoderWrapper[Transformer]):
    """A decoder for beam search; it runs one token of each row at a time."""

    threads = True
    """The kernels have threads of their own."""

    def __init__(self, model: Transformer, width: int) -> None:
        """With up to `width` beams for each source."""
        super().__init__(model)
        self.width, self.pace = width, Pace()

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> Beams:
        cache = self.model.start(inputs, attention_mask=attention_mask, batch=batch, capacity=1)
        rows, source = len(cache.attention_mask), cache.memory[0][0].shape[2]
        seen = np.ones((rows, source), np.bool_)
        if cache.memory_attention_mask is not None:
            real = cache.memory_attention_mask != 0
            seen = (real | ~real.any(1, keepdim=True)).numpy()  # in an empty source all columns count as real
        held = np.repeat(np.arange(rows)[:, None], source, 1)
        shape = (rows * self.width, cache.keys[0].shape[1], capacity, cache.keys[0].shape[3])
        keys, values = ([torch.empty(shape) for _ in cache.keys] for _ in range(2))
        memory = Memory([_whole(k) for k, _ in cache.memory], [_whole(v) for _, v in cache.memory], held, seen)
        return Beams(keys, values, np.zeros((rows, capacity), np.int64), 0, memory)

    def extend(self, state: Beams, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError("beam search needs logits only")

    def step(self, state: Beams, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        assert attention_mask is None
        for column in ids.unbind(1):
            logits = self._forward(state, column)
        return logits

    def _forward(self, state: Beams, ids: Tensor) -> Tensor:
        rows = len(state.held)
        plan = state.plan
        if plan is None or len(plan.end) != rows:
            plan = state.plan = Plan(self.model, rows, state.keys, state.values, state.memory)
        state.held[:, state.length] = np.arange(rows)
        plan.held[:], plan.end[:] = state.held, state.length
        layout = Layout(torch.full((rows, 1), state.length), None, state.length)
        x = self.model.target(ids[:, None], layout=layout).x[:, 0]
        plan.run(x.numpy(), self.pace)
        state.length += 1
        return torch.from_numpy(plan.logits)

    def reorder(self, state: Beams, /, rows: Tensor) -> Beams:
        index = rows.numpy()
        memory = state.memory
        places = Memory(memory.keys, memory.values, memory.held[index], memory.seen[index])
        plan = state.plan
        if plan is not None and len(plan.end) == len(index):  # the plan keeps its operands
            memory.held[:], memory.seen[:] = places.held, places.seen
            places = memory
        else:
            plan = None
        return Beams(state.keys, state.values, state.held[index], state.length, places, plan)


def _whole(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.numpy())
