"""Which weights of a model train: all of them, its upper blocks, or adapters and heads beside frozen matrices."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from headway.baselines.ngram import NGram
from headway.config.model import ModelConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import ShapeConfig
from headway.errors import ConfigError, counted
from headway.kernels.lora import add_adapters
from headway.model.heads import HEADS
from headway.model.model import Model, Transformer

TASK_HEADS = tuple(name for name, kind in HEADS.items() if not kind.vocabulary)
"""Heads that a task adds to a base. Beside adapters they are trained in full."""


def mark_trainable(model: Model, shape: ShapeConfig) -> None:
    """Add adapters and freeze what does not train."""
    if shape.lora:
        have = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
        if missing := [name for name in shape.lora_targets if name not in have]:
            listed = ", ".join(sorted(have - set(TASK_HEADS)))
            what = f"model.lora_targets: the model has no matrix {missing[0]!r}"
            raise ConfigError("C003", what, f"its matrices are {listed}")
        add_adapters(model, shape.lora, shape.lora_targets)
        for head in TASK_HEADS:
            if (module := getattr(model, head, None)) is not None:
                module.requires_grad_(True)
    check_freeze(model.config, shape.freeze)
    if shape.freeze:
        assert isinstance(model, Transformer)
        first = model.config.encoder is not None
        front, stack = (model.source, model.encoder) if first else (model.target, model.decoder)
        front.requires_grad_(False)
        for block in list(stack.blocks)[: shape.freeze]:
            block.requires_grad_(False)


def check_freeze(config: AnyConfig, freeze: int) -> None:
    """Refuse to freeze more blocks than the model has."""
    if not freeze:
        return
    if not isinstance(config, ModelConfig):
        raise ConfigError("C004", f"model.freeze = {freeze} needs a single transformer, which has blocks to freeze")
    stack = config.encoder or config.decoder
    if stack is None or freeze > stack.n_layers:
        blocks = 0 if stack is None else stack.n_layers
        raise ConfigError("C003", f"model.freeze = {freeze}, but the model has {counted(blocks, 'blocks')}")


def trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that training changes, by name: by gradients, by counting, or because a teacher follows them."""
    counted = isinstance(model, NGram)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad or counted}
    teacher = getattr(model, "distill", None)
    follow = {} if teacher is None else teacher.state_dict(prefix="distill.")
    return trained | {name: tensor for name, tensor in follow.items() if name not in trained}


def frozen_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights that stay as they are, by name."""
    changing = trainable_weights(model)
    return ((name, p.detach()) for name, p in model.named_parameters() if name not in changing)


def frozen_digest(weights: Iterable[tuple[str, Tensor]]) -> str:
    """A digest of frozen weights, which checkpoints do not hold."""
    digest = hashlib.sha256()
    for name, tensor in weights:
        digest.update(f"{name} {float(tensor.double().sum())!r}".encode())
    return digest.hexdigest()
