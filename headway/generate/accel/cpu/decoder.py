"""Decoding on a CPU: the model prefills prompts, Numba kernels take the steps.

Numba is imported by the first step: it takes half a second, and a prefill needs none of it.
Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headway.generate.accel.abilities import is_int8
from headway.generate.accel.base import FastDecoder
from headway.generate.accel.passes import SIZES, Piece, split_passes
from headway.generate.engine.slot_cache import SlotCache
from headway.model.cache import KVCache
from headway.model.masks import Layout
from headway.model.model import Transformer

if TYPE_CHECKING:
    from headway.generate.accel.cpu.plan import Pace, Plan


def compiled() -> bool:
    """Whether an earlier process has left compiled kernels on disk: beside their source, or where Numba puts them."""
    if any(Path(__file__).with_name("__pycache__").glob("kernels.attend-*.nbi")):
        return True
    from headway.generate.accel.cpu.kernels import attend

    return any(Path(attend.stats.cache_path or ".").glob("kernels.attend-*.nbi"))


class CpuDecoder(FastDecoder):
    """Numba kernels. Computes only the rows that are asked for."""

    runs_ahead = False

    def __init__(self, model: Transformer, keys: Sequence[Tensor], values: Sequence[Tensor]) -> None:
        super().__init__(model, keys, values)
        positions = torch.zeros(self.rows, self.columns, dtype=torch.long)
        self.slots = SlotCache(KVCache(list(keys), list(values), positions, positions.bool()))
        self.argmax = torch.zeros(self.rows, dtype=torch.long)
        self._logits = torch.zeros(self.rows, self.lm.vocab)
        self._pace: Pace | None = None
        self._plans: dict[int, Plan] = {}

    def forget(self) -> None:
        self._plans.clear()

    def _model(self) -> Transformer:
        model = self.owner()
        assert model is not None, "who decodes has the model"
        return model

    @torch.no_grad()
    def prefill(self, texts: Mapping[int, tuple[int, Sequence[int]]]) -> Tensor:
        found: dict[int, Tensor] = {}
        for part in self._passes(texts):
            for row, held, _, _ in part:
                self.slots.tokens[row] = [0] * held  # only their number counts
            step = self.slots.step({row: list(new) for row, _, new, _ in part})
            logits = self._model().step(step, step.ids)
            found |= {row: logits[place] for place, (row, _, _, _) in enumerate(part)}
        return torch.stack([found[row] for row in texts])

    def _passes(self, texts: Mapping[int, tuple[int, Sequence[int]]]) -> Iterator[list[Piece]]:
        """Passes of a prefill. With int8 weights, only prompts of one length share a pass: attention sums padded rows
        in another order, which changes how the next product rounds, so a sequence would depend on its batch."""
        if not is_int8(self._model()):
            yield from split_passes(texts)
            return
        alike: dict[tuple[int, int], dict[int, tuple[int, Sequence[int]]]] = {}
        for row, (held, new) in texts.items():
            alike.setdefault((held, len(new)), {})[row] = (held, new)
        for (_, count), group in alike.items():
            rows, each = list(group), max(1, SIZES[-1] // max(count, 1))
            for begin in range(0, len(rows), each):
                yield from split_passes({row: group[row] for row in rows[begin : begin + each]})

    @torch.no_grad()
    def step(self, rows: Sequence[int] | None = None) -> Tensor:
        from headway.generate.accel.cpu.kernels import highest
        from headway.generate.accel.cpu.plan import Pace, Plan

        index = np.arange(self.rows) if rows is None else np.array(rows)
        self._pace = self._pace or Pace()
        if len(index) not in self._plans:
            self._plans[len(index)] = Plan(self._model(), len(index), self.keys, self.values)
        plan, ends = self._plans[len(index)], self.end.numpy()
        plan.held[:], plan.end[:] = index[:, None], ends[index]
        layout = Layout(torch.from_numpy(plan.end)[:, None], None, 0)
        x = self.front(torch.from_numpy(self.ids.numpy()[index])[:, None], layout=layout).x[:, 0]
        plan.run(x.numpy(), self._pace)
        best = np.empty(len(index), np.int64)
        highest(plan.logits, best)
        self._logits.numpy()[index], self.argmax.numpy()[index] = plan.logits, best
        ends[index] = np.minimum(plan.end + 1, self.columns - 1)
        return self._logits
