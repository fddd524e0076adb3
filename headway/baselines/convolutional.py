"""Convolutional sequence-to-sequence model (Gehring et al. 2017): gated convolutions and attention.

All positions are computed in parallel; a token sees further back with every layer.
Letters: B batch, T tokens, S source tokens, M width, K kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.baselines.base import Baseline, initialise_embeddings, masked_softmax
from headway.config.networks.baseline import BaselineConfig
from headway.model.attention import Hook
from headway.model.masks import Layout

SQRT_HALF = math.sqrt(0.5)
"""Factor on a sum of two, which keeps the variance."""


@dataclass
class Memory:
    """An encoded source."""

    keys: Tensor
    """(B, S, M): the output of the encoder."""
    values: Tensor
    """The same plus the embeddings, which tell the word and not only its context."""
    attention_mask: Tensor | None
    scale: Tensor | float
    """√(number of source tokens): restores the variance, which a mean over many tokens makes small."""

    def take(self, rows: Tensor) -> Memory:
        attention_mask = None if self.attention_mask is None else self.attention_mask[rows]
        scale = self.scale[rows] if isinstance(self.scale, Tensor) else self.scale
        return Memory(self.keys[rows], self.values[rows], attention_mask, scale)


@dataclass
class State:
    """The decoding state."""

    past: list[Tensor]
    """The last K - 1 inputs of each layer (B, K - 1, M); zeros before the first token."""
    count: Tensor
    """(B, 1): number of tokens so far, without padding."""
    columns: int = 0
    """Number of tokens so far, with padding."""
    memory: Memory | None = None


class Layer(nn.Module):
    """A gated convolution: one half of its output is the gate of the other (Dauphin et al. 2017)."""

    def __init__(self, width: int, kernel: int, cross: bool) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, kernel)
        if cross:
            self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T + K - 1, M) to (B, T, M)."""
        return F.glu(self.conv(x.mT).mT, -1)

    def attend(self, y: Tensor, embedded: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """y plus what attention finds in the source, and the attention weights (B, T, S)."""
        query = (self.query(y) + embedded) * SQRT_HALF
        weights = masked_softmax(query @ memory.keys.mT, memory.attention_mask)
        return (y + self.out((weights @ memory.values) * memory.scale)) * SQRT_HALF, weights


class Convolutional(Baseline[State]):
    """Encoder and decoder of gated convolutions; a decoder alone is a language model."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        cross = config.source is not None
        layers = [Layer(config.width, config.kernel, cross) for _ in range(config.depth)]
        if cross:
            readers = [Layer(config.width, config.kernel, False) for _ in range(config.depth)]
            self.reader = nn.ModuleList(readers)
        self.writer = nn.ModuleList(layers)
        _initialise(self)

    def initial_state(self, rows: int, device: torch.device) -> State:
        like, kernel = self.target.table.weight, self.config.kernel
        zeros = torch.zeros(rows, kernel - 1, self.config.width, device=device, dtype=like.dtype)
        return State([zeros] * self.config.depth, torch.zeros(rows, 1, dtype=torch.long, device=device))

    def encode_source(self, inputs: Tensor, attention_mask: Tensor | None) -> State:
        embedded = x = self.source(inputs, attention_mask).x
        side = self.config.kernel // 2
        for layer in self.reader:
            given = _zero_padding(F.dropout(x, self.config.dropout, self.training), attention_mask)
            x = (layer(F.pad(given, (0, 0, side, side))) + x) * SQRT_HALF
        count = inputs.shape[1] if attention_mask is None else (attention_mask != 0).sum(1)[:, None, None].to(x.dtype)
        scale = math.sqrt(count) if isinstance(count, int) else count.sqrt()
        state = self.initial_state(len(inputs), inputs.device)
        state.memory = Memory(x, (x + embedded) * SQRT_HALF, attention_mask, scale)
        return state

    def decode(self, state: State, ids: Tensor, attention_mask: Tensor | None, hook: Hook | None = None) -> Tensor:
        embedded = x = self.target(ids, layout=_layout(state, ids, attention_mask)).x
        for i, layer in enumerate(self.writer):
            assert isinstance(layer, Layer)
            given = _zero_padding(F.dropout(x, self.config.dropout, self.training), attention_mask)
            window = torch.cat([state.past[i].to(given.dtype), given], 1)
            state.past[i] = window[:, ids.shape[1] :]
            y = layer(window)
            if state.memory is not None:
                y, weights = layer.attend(y, embedded, state.memory)
                if hook is not None:
                    hook(f"decoder.blocks.{i}.cross.weights", lambda heads=None, w=weights: w[:, None])
            x = (y + x) * SQRT_HALF
        return F.dropout(x, self.config.dropout, self.training)

    def reorder(self, state: State, /, rows: Tensor) -> State:
        memory = None if state.memory is None else state.memory.take(rows)
        return State([past[rows] for past in state.past], state.count[rows], state.columns, memory)


def _layout(state: State, ids: Tensor, attention_mask: Tensor | None) -> Layout:
    """Positions of new tokens, without padding; updates the state's counts."""
    steps = ids.shape[1]
    if attention_mask is None:
        positions = state.count + torch.arange(steps, device=ids.device)
        state.count = state.count + steps
    else:
        along = (attention_mask != 0).cumsum(1)
        positions = (state.count + along - 1).clamp(min=0)
        state.count = state.count + along[:, -1:]
    layout = Layout(positions, attention_mask, state.columns)
    state.columns += steps
    return layout


def _zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Zeros in place of padding, as there are before and after a text."""
    return x if attention_mask is None else x * (attention_mask != 0)[..., None]


@torch.no_grad()
def _initialise(model: Convolutional) -> None:
    """Variances as the paper derives them, so that gates and dropout keep them."""
    config = model.config
    initialise_embeddings(model, 0.1)
    for module in model.modules():
        if isinstance(module, nn.Conv1d):
            module.weight.normal_(0, math.sqrt(4 * (1 - config.dropout) / (config.kernel * config.width)))
        elif isinstance(module, nn.Linear) and module is not model.lm.output:
            module.weight.normal_(0, math.sqrt(1 / config.width))
        if isinstance(module, nn.Conv1d | nn.Linear) and module.bias is not None:
            module.bias.zero_()
