"""Token ids to vectors: embedding, positions, token types.

Letters: B batch, T tokens, M width of the model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.model import TokensConfig
from headway.errors import DataError
from headway.front.embedded import Embedded, add_positions, is_readable, make_positions
from headway.kernels.linear import Linear
from headway.model.masks import Layout
from headway.model.norms import LayerNorm
from headway.model.positions import make_embedding

VOCAB_MULTIPLE = 64
"""Vocabularies are rounded up to a multiple of it, for fast matrix products on GPUs. Files and logits never show it."""


def _stream(x: Tensor) -> Tensor:
    """x in the dtype of the residual stream: half precision under autocast. Norms still sum in float32."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


class TokenEmbedding(nn.Module):
    """Token, position and token-type vectors added up, then norm, dropout and a map where the family has them."""

    def __init__(self, config: TokensConfig, width: int) -> None:
        super().__init__()
        self.config = config
        rows = -(-config.vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        inner = config.width or width
        self.table = make_embedding(rows, inner)
        self.project = None
        if config.width is not None:
            self.project = Linear(inner, width, bias=config.project == "last")
            inner = width if config.project == "first" else inner
        self.positions = make_positions(config.positions, inner)
        self.segments = make_embedding(config.segments, inner) if config.segments else None
        self.norm = LayerNorm(inner, config.norm_eps, config.norm_bias) if config.norm else None

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        layout: Layout | None = None,
    ) -> Embedded:
        """`layout` is given when a cache places the tokens; otherwise it follows from `attention_mask`."""
        if is_readable(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.config.vocab:
            raise DataError(
                "D001",
                f"token ids {int(ids.min())} … {int(ids.max())}, the vocabulary has {self.config.vocab}",
            )
        layout = layout or Layout.of(ids.shape[1], attention_mask, ids.device)
        x = self.table(ids)
        if self.config.scale != 1.0:
            x = x * self.config.scale
        if self.project is not None and self.config.project == "first":
            x = self.project(x)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if token_type_ids is None else self.segments(token_type_ids))
        x, repeated_positions = add_positions(self.positions, x, layout)
        x = _stream(x)
        if self.norm is not None:
            x = self.norm(x)
        x = F.dropout(x, self.config.dropout, self.training)
        if self.project is not None and self.config.project == "last":
            x = self.project(x)
        return Embedded(x, layout, repeated_positions)
