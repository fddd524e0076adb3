"""Where a vision encoder looks: the attention of its class token, and attention rollout. Fused kernels stay on.

Letters: B images, H heads, T tokens, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from headway.config.model import PatchesConfig
from headway.errors import DataError
from headway.model.attention import Attention
from headway.model.model import Model, Transformer, evaluating


def class_attention(model: Model, images: Tensor, layer: int | None = None) -> Tensor:
    """(B, H, rows, columns): how much each head of a layer looks from the class token at each patch.

    `layer` counts from 0; None is the last one.
    """
    encoder, side = _encoder(model)
    count = len(encoder.encoder.blocks)
    if layer is not None and not 0 <= layer < count:
        raise DataError("D001", f"no layer {layer}: the model has {count}, counted from 0")
    wanted = f"encoder.blocks.{count - 1 if layer is None else layer}.attention.weights"
    found: list[Tensor] = []

    def hook(name: str, make: Callable[..., Tensor]) -> None:
        if name == wanted:
            found.append(make().float()[:, :, 0])

    with evaluating(model):
        model(images, hook=hook)
    return _patches(found[0], side)


def rollout(model: Model, images: Tensor) -> Tensor:
    """(B, rows, columns): attention rollout (Abnar & Zuidema 2020), what the class token takes from each patch.

    The maps of all layers are multiplied, each as the mean of its heads and of the residual connection.
    """
    _, side = _encoder(model)
    joint: list[Tensor] = []

    def hook(name: str, make: Callable[..., Tensor]) -> None:
        if name.endswith("attention.weights"):
            own = make().float().mean(1)  # B T T
            own = (own + torch.eye(own.shape[-1], device=own.device)) / 2
            joint[:] = [own @ joint[0] if joint else own]

    with evaluating(model):
        model(images, hook=hook)
    return _patches(joint[0][:, 0], side)


def gradient_rollout(model: Model, images: Tensor, labels: Tensor | None = None) -> Tensor:
    """(B, rows, columns): the relevance of each patch for a label, the predicted one if none is given.

    Attention weights count as far as the label's logit grows with them (Chefer et al. 2021). The gradient of the
    weights is that of the attention's output times the values, so that no kernel has to return weights.
    """
    encoder, side = _encoder(model)
    if model.config.classify is None or not model.config.classify.labels:
        what = "gradient-weighted rollout explains a label, and this model gives none"
        raise DataError("D001", what, "leave out rollout=gradient, or train a classifier: headway train images")
    if model.config.quantization != "none":
        raise DataError("D001", "gradient-weighted rollout needs weights that are not quantized")
    maps: list[Tensor] = []

    def hook(name: str, make: Callable[..., Tensor]) -> None:
        if name.endswith("attention.weights"):
            maps.append(make().detach().float())

    was_training = model.training
    model.eval()
    try:
        with torch.enable_grad(), _captured(encoder) as (outputs, values):
            logits = model.classify(model(images.detach().requires_grad_(), hook=hook).hidden)
            chosen = logits.detach().argmax(1) if labels is None else labels
            gradients = torch.autograd.grad(logits.gather(1, chosen[:, None]).sum(), outputs)
    finally:
        model.train(was_training)
    relevance = torch.eye(maps[0].shape[-1], device=images.device).expand(len(images), -1, -1)
    for weights, gradient, value, block in zip(maps, gradients, values, encoder.encoder.blocks, strict=True):
        slope = _heads(gradient, block.attention) @ value.transpose(-1, -2)  # type: ignore[arg-type]  # B H T T
        relevance = relevance + (slope.float() * weights).clamp(min=0).mean(1) @ relevance
    return _patches(relevance[:, 0], side)


@contextmanager
def _captured(model: Transformer) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Of each layer in a forward pass: the attention's output before its last matrix, and the values (B, H, T, D)."""
    outputs: list[Tensor] = []
    values: list[Tensor] = []
    handles = []
    for block in model.encoder.blocks:
        attention: Any = block.attention

        def keep_values(module: Any, inputs: Any, packed: Tensor, own: Attention = attention) -> None:
            value = packed[..., (own.heads + own.groups) * own.width :].unflatten(-1, (-1, own.width)).transpose(1, 2)
            values.append(value.detach().repeat_interleave(own.heads // own.groups, 1))

        handles.append(attention.qkv.register_forward_hook(keep_values))
        handles.append(attention.out.register_forward_pre_hook(lambda module, inputs: outputs.append(inputs[0])))
    try:
        yield outputs, values
    finally:
        for handle in handles:
            handle.remove()


def _heads(flat: Tensor, attention: Attention) -> Tensor:
    """(B, T, H·D) to (B, H, T, D)."""
    found: Tensor = flat.unflatten(-1, (-1, attention.width))
    return found.transpose(1, 2)


def _patches(row: Tensor, side: int) -> Tensor:
    """A row of attention (…, T) as a map of the patches, which come last."""
    found: Tensor = row[..., row.shape[-1] - side**2 :].unflatten(-1, (side, side))
    return found


def _encoder(model: Model) -> tuple[Transformer, int]:
    """A vision encoder, and how many patches are along a side."""
    front = model.config.source
    if not isinstance(front, PatchesConfig) or front.holds != "images" or not isinstance(model, Transformer):
        raise DataError("D001", "this model does not read images", "attention pictures are for vision encoders")
    if model.config.decoder is not None:
        raise DataError("D001", "attention pictures are for vision encoders, and this model also has a decoder")
    return model, front.image // front.patch
