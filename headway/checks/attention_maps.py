"""Attention maps beside the fused kernel: weights of selected layers and heads, recomputed from queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headway.errors import DataError
from headway.model.model import Model


@torch.no_grad()
def attention_maps(
    model: Model,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    attention_mask: Tensor | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """Weights (batch, heads, queries, keys) by name, such as `decoder.blocks.3.attention`; None selects all."""
    maps: dict[str, Tensor] = {}
    chosen = None if heads is None else list(heads)
    _check(model, layers, chosen)

    def hook(name: str, make: Callable[..., Tensor]) -> None:
        parts = name.split(".")  # decoder blocks 3 attention weights; before them, the tower of a model that has two
        if parts[-1] == "weights" and (layers is None or int(parts[parts.index("blocks") + 1]) in layers):
            maps[name.removesuffix(".weights")] = make(heads=chosen)

    model(inputs, targets, attention_mask=attention_mask, hook=hook)
    if not maps:
        raise DataError("D001", "the model has no attention: it is a recurrent network")
    return maps


def _check(model: Model, layers: Sequence[int] | None, heads: Sequence[int] | None) -> None:
    stacks = [s for s in (model.config.encoder, model.config.decoder) if s is not None]
    deepest, most = max(s.n_layers for s in stacks), min(s.n_heads for s in stacks)
    for what, chosen, count in (("layer", layers, deepest), ("head", heads, most)):
        for number in chosen or ():
            if not 0 <= number < count:
                raise DataError("D001", f"no {what} {number}: the model has {count}, counted from 0")
