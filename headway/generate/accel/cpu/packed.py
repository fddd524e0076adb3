"""A model on a CPU whose scores for many rows come through a packed output matrix.

The output matrix is the largest one, and read at every step. Its numbers laid out as the library's product wants them,
that takes two thirds of the time; the layout is made once for a search, and takes as much memory as the matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.generate.accel.abilities import PACKED_HEAD, listened_to, within
from headway.generate.protocol import Around
from headway.model.cache import Cache, KeyValues
from headway.model.heads import LMHead
from headway.model.model import Model


def packs(model: Model) -> bool:
    """Whether this build of torch has the product, and the model such a matrix."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not known or model.config.lm is None or not within(model.config.lm, PACKED_HEAD):
        return False
    output = model.lm.output
    plain = type(model.lm) is LMHead and type(output) is nn.Linear and not listened_to(model.lm, output)
    return plain and output.weight.device.type == "cpu" and output.weight.dtype == torch.float32


class PackedSteps(Around[Model]):
    """The model, as beam search sees it."""

    def __init__(self, model: Model, rows: int) -> None:
        """Laid out for `rows` at a time; others are as right, if not as fast."""
        super().__init__(model)
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(model.lm.output.weight.detach(), rows)

    def start(
        self, inputs: Tensor | None = None, *, keep: Tensor | None = None, batch: int = 1, capacity: int
    ) -> Cache:
        return self.model.start(inputs, keep=keep, batch=batch, capacity=capacity)

    def extend(self, state: KeyValues, /, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.model.extend(state, ids, keep)

    def step(self, state: KeyValues, /, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        head = self.model.lm
        x = head.features(self.model.extend(state, ids, keep)[:, -1]).contiguous()
        scores: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, head.output.bias, "none", [], "")
        return scores[:, : head.vocab]

    def reorder(self, state: Cache, /, rows: Tensor) -> Cache:
        return self.model.reorder(state, rows)
