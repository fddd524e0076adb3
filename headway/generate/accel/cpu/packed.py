"""A model on a CPU whose scores for many rows come through a packed output matrix.

The output matrix is the largest one, and read at every step. Its numbers laid out as the library's product wants them,
that takes two thirds of the time; the layout is made once for a search, and takes as much memory as the matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.generate.accel.abilities import PACKED_HEAD, has_hooks, within
from headway.generate.protocol import DecoderWrapper
from headway.model.cache import KVCache, KVCacheLike
from headway.model.heads import LMHead
from headway.model.model import Transformer


def packs(model: Transformer) -> bool:
    """Whether this build of torch has the product, and the model such a matrix."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not known or model.config.lm is None or not within(model.config.lm, PACKED_HEAD):
        return False
    output = model.lm.output
    plain = type(model.lm) is LMHead and type(output) is nn.Linear and not has_hooks(model.lm, output)
    return plain and output.weight.device.type == "cpu" and output.weight.dtype == torch.float32


class PackedHeadDecoder(DecoderWrapper[Transformer]):
    """The model, as beam search sees it."""

    def __init__(self, model: Transformer, rows: int) -> None:
        """Laid out for `rows` at a time; others are as right, if not as fast."""
        super().__init__(model)
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(model.lm.output.weight.detach(), rows)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> KVCache:
        return self.model.start(inputs, attention_mask=attention_mask, batch=batch, capacity=capacity)

    def extend(self, state: KVCacheLike, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.model.extend(state, ids, attention_mask)

    def step(self, state: KVCacheLike, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        head = self.model.lm
        x = head.features(self.model.extend(state, ids, attention_mask)[:, -1]).contiguous()
        logits: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, head.output.bias, "none", [], "")
        return logits[:, : head.vocab]

    def reorder(self, state: KVCache, /, rows: Tensor) -> KVCache:
        return self.model.reorder(state, rows)
