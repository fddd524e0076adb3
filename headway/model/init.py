"""Initial weights, as the papers have them."""

from __future__ import annotations

import math

import torch
from torch import nn

from headway.config.model import InitConfig, ModelConfig
from headway.config.networks.graph import GraphConfig
from headway.config.networks.memory import MemoryConfig
from headway.front.patches import PatchEmbedding
from headway.front.sounds import FrameEmbedding
from headway.front.tokens import TokenEmbedding
from headway.kernels.grouped import Grouped
from headway.model.attention import Attention
from headway.model.feed_forward import Experts, FeedForward
from headway.model.heads import DenoiseHead
from headway.model.positions import sinusoidal
from headway.model.stack import Residual, Stack


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig | GraphConfig | MemoryConfig) -> None:
    """Fill the weights in place. Norms and layer scales keep the values of their constructors."""
    if next(model.parameters(), torch.empty(0)).is_meta:
        return
    how = config.init
    tables = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d):
            if module.weight not in tables:  # a tied output matrix is initialised as the embedding that it is
                _matrix(module.weight, how)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, Grouped):
            for matrix in module.weight.unflatten(0, (module.experts, -1)):
                _matrix(matrix, how)
        elif isinstance(module, nn.Embedding):
            std = module.embedding_dim**-0.5 if how.kind == "xavier" else 1.0 if how.kind == "t5" else how.std
            module.weight.normal_(0, std)
        elif isinstance(module, PatchEmbedding):  # Dosovitskiy et al. 2021
            for learned in (module.positions, module.first, module.second):
                if learned is not None:
                    nn.init.trunc_normal_(learned, std=how.std)
    for module in model.modules():
        if isinstance(module, TokenEmbedding):  # rows that no token uses
            module.table.weight[module.config.vocab :] = 0
        elif isinstance(module, FrameEmbedding) and module.config.positions.kind == "learned":  # Radford et al. 2022
            places = torch.arange(module.config.positions.length, device=module.conv1.weight.device)
            module.positions.table.weight.copy_(sinusoidal(places, module.conv1.out_channels, "halves"))  # type: ignore[union-attr]
        elif isinstance(module, Residual) and module.modulate is not None:  # Peebles & Xie 2023: each block starts as x
            module.modulate.weight.zero_()
        elif isinstance(module, DenoiseHead):
            module.output.weight.zero_()
        elif isinstance(module, Stack):
            if module.modulate is not None:
                module.modulate.weight.zero_()
            if how.kind == "residual":
                _scale_residuals(module)
        elif how.kind == "t5" and isinstance(module, Attention | FeedForward):
            _t5(module)


def _matrix(weight: torch.Tensor, how: InitConfig) -> None:
    if how.kind == "xavier":  # Glorot & Bengio 2010, as in Vaswani et al. 2017
        nn.init.xavier_uniform_(weight)
    elif how.kind == "t5":
        weight.normal_(0, weight.shape[-1] ** -0.5)
    else:
        weight.normal_(0, how.std)


def _scale_residuals(stack: Stack) -> None:
    """GPT-2: the deeper the stack, the smaller its branch outputs start, so that their sum does not grow."""
    factor = 1 / math.sqrt(2 * max(1, len(stack.blocks)))
    for module in stack.modules():
        if isinstance(module, Attention):
            module.out.weight.mul_(factor)
        elif isinstance(module, FeedForward | Experts):
            module.down.weight.mul_(factor)


def _t5(module: Attention | FeedForward) -> None:
    """T5 does not scale q·k by 1/√d; its query weights start smaller by this factor (Raffel et al. 2020)."""
    if isinstance(module, Attention):
        queries = module.heads * module.width
        weight = module.q.weight if hasattr(module, "q") else module.qkv.weight
        weight[:queries].mul_(module.width**-0.5)
