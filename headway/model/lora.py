"""Which weights train: all, the upper blocks, or LoRA adapters (Hu et al. 2022) beside frozen matrices."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.baselines import AnyConfig, BaselineConfig
from headway.config.recipe import ShapeConfig
from headway.errors import ConfigError, counted
from headway.model.heads import HEADS
from headway.model.model import Model, Transformer

SCALE = 2.0
"""Factor on the adapter's output: the usual ratio of alpha to rank."""
ADAPTER_SUFFIXES = (".narrow", ".widen")
"""The names of an adapter's weights end so; they are also the names in its file."""


TASK_HEADS = tuple(name for name, kind in HEADS.items() if not kind.vocabulary)
"""Heads that a task adds to a base. Beside adapters they are trained in full."""


class LoRALinear(nn.Linear):
    """W x + b + scale · widen (narrow x). At first it equals W x + b, because `widen` starts at zero."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        device = base.weight.device
        self.narrow = nn.Parameter(torch.empty(rank, base.in_features, device=device))
        self.widen = nn.Parameter(torch.zeros(base.out_features, rank, device=device))
        nn.init.kaiming_uniform_(self.narrow, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        beside = F.linear(F.linear(x.to(self.narrow.dtype), self.narrow), self.widen)
        return F.linear(x, self.weight, self.bias) + SCALE * beside.to(x.dtype)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """A plain linear layer that computes the same."""
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        change = SCALE * (self.widen @ self.narrow)
        plain.weight = nn.Parameter((self.weight.to(change.dtype) + change).to(self.weight.dtype))
        plain.bias = self.bias
        return plain


def add_adapters(model: nn.Module, rank: int, targets: Sequence[str]) -> int:
    """Freeze the model and add adapters to the target matrices; returns their number."""
    model.requires_grad_(False)
    found = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets and isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child, rank))
                found += 1
    return found


def merge_adapters(model: nn.Module) -> None:
    """Replace every adapted matrix by a plain one that includes its adapter."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoRALinear):
                setattr(module, name, child.merged())


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
    if isinstance(config, BaselineConfig):
        raise ConfigError("C004", f"model.freeze = {freeze} needs a transformer, which has blocks to freeze")
    stack = config.encoder or config.decoder
    if stack is None or freeze > stack.n_layers:
        blocks = 0 if stack is None else stack.n_layers
        raise ConfigError("C003", f"model.freeze = {freeze}, but the model has {counted(blocks, 'blocks')}")


def trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def frozen_digest(weights: Iterable[tuple[str, Tensor]]) -> str:
    """A digest of frozen weights, which checkpoints do not hold."""
    digest = hashlib.sha256()
    for name, tensor in weights:
        digest.update(f"{name} {float(tensor.double().sum())!r}".encode())
    return digest.hexdigest()
