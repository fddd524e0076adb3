"""An encoder–decoder for beam search with many rows on a CPU, by torch's products alone.

Two things make it faster than `Model.step`. A product is taken as W·Xᵀ, with the texts side by side as columns, which
the library multiplies faster than X·Wᵀ, above all if they are a multiple of 16: some may be empty. And beams that move
take no keys and values along: all beams of an input look at all cells that any of them wrote, and a mask says which
are not their own.
Letters: B inputs, W beams, H heads, D width of a head, S columns of a text, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import StackConfig
from headway.generate.protocol import DecoderWrapper
from headway.model.masks import Layout
from headway.model.model import Transformer
from headway.model.stack import activation

Product = Callable[[Tensor], Tensor]
EVEN = 16
"""Rows are rounded up to a multiple of so many."""
STRETCH = 4096
"""Scores of so many tokens are computed at a time: a larger part of the matrix is not at hand for both cores."""
STORED = 8
"""Columns by which the room for keys and values grows: they are copied when inputs drop out."""


@dataclass(frozen=True)
class Cells:
    """Keys and values (B, H, cells, D), and what is hidden of them: (B, 1, W or 1, cells), or None."""

    keys: Tensor
    values: Tensor
    hidden: Tensor | None

    def grown(self, count: int) -> Cells:
        """With room for so many; zeros, since what is hidden still counts, with a weight of zero."""
        more = (0, 0, 0, count - self.keys.shape[2])
        return replace(self, keys=F.pad(self.keys, more), values=F.pad(self.values, more))

    def upto(self, count: int) -> Cells:
        hidden = None if self.hidden is None else self.hidden[..., :count]
        return Cells(self.keys[:, :, :count], self.values[:, :, :count], hidden)

    def take(self, inputs: Tensor) -> Cells:
        hidden = None if self.hidden is None else self.hidden[inputs]
        return Cells(self.keys[inputs], self.values[inputs], hidden)


@dataclass(frozen=True)
class Columns:
    """What has been read."""

    own: list[Cells]
    """By layers: cell s W + w has what beam w wrote as column s."""
    sources: list[Cells]
    others: Tensor
    """(B, 1, W, S W): the cells that are not of a beam's own text; before beams part, there is one of each input."""
    place: list[int]
    """Columns that are filled, in a list since reading adds to it."""


class ColumnBeamDecoder(DecoderWrapper[Transformer]):
    """A model, as beam search sees it; nothing but one token of each row is read at a time."""

    def __init__(self, model: Transformer, width: int) -> None:
        """With `width` beams for each input, as soon as there are any."""
        super().__init__(model)
        assert model.config.decoder is not None
        self.width = width
        self.layers = [_Layer(block, model.config.decoder) for block in model.decoder.blocks]
        self.output, self.logits = _matrix(model.lm.output), torch.empty(0)

    def start(
        self, inputs: Tensor | None = None, *, attention_mask: Tensor | None = None, batch: int = 1, capacity: int
    ) -> Columns:
        cache = self.model.start(inputs, attention_mask=attention_mask, batch=batch, capacity=1)
        rows, heads, _, width = cache.keys[0].shape
        hidden = None
        if cache.memory_attention_mask is not None:
            real = cache.memory_attention_mask != 0
            hidden = ~(real | ~real.any(1, keepdim=True))[:, None, None]  # in an empty source, nothing is
        none = torch.empty(rows, heads, 0, width)
        own = [Cells(none, none, None) for _ in cache.keys]
        others = torch.ones(rows, 1, 1, capacity * self.width, dtype=torch.bool)
        return Columns(own, [Cells(k, v, hidden) for k, v in cache.memory], others, [0])

    def extend(self, state: Columns, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError("beam search asks for scores only")

    def step(self, state: Columns, /, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Scores (B W, V), which the next step overwrites: to fill new memory takes longer than it seems."""
        assert attention_mask is None
        for column in ids.unbind(1):
            x = self._read(state, column)
        head, (weight, bias) = self.model.lm, self.output
        count = len(weight) * len(x)
        if len(self.logits) < count:
            self.logits = torch.empty(count)
        logits, features = self.logits[:count].view(len(weight), len(x)), head.features(x).T
        for part, out in zip(weight.split(STRETCH), logits.split(STRETCH), strict=True):
            torch.mm(part, features, out=out)
        if bias is not None:
            logits += bias
        return logits.T[: len(ids), : head.vocab]

    def reorder(self, state: Columns, /, rows: Tensor) -> Columns:
        """Rows of an input stay together; some inputs may be left out."""
        before = state.others.shape[2]
        inputs, parents = (rows // before).view(-1, self.width)[:, 0], (rows % before).view(-1, 1, self.width, 1)
        own, sources, others = state.own, state.sources, state.others
        if len(inputs) < len(others):
            own, sources = ([cells.take(inputs) for cells in each] for each in (own, sources))
            others = others[inputs]
        others = others.gather(2, parents.expand(-1, 1, -1, others.shape[3]))
        return Columns(own, sources, others, state.place)

    def _read(self, state: Columns, ids: Tensor) -> Tensor:
        column, beams = state.place[0], state.others.shape[2]
        at, beam = column * self.width, torch.arange(beams)
        state.others[:, :, beam, at + beam] = False
        state.place[0] += 1
        if column % STORED == 0:
            state.own[:] = [cells.grown(at + STORED * self.width) for cells in state.own]
        x = self.model.target(ids[:, None], layout=Layout(torch.full((len(ids), 1), column), None, column)).x[:, 0]
        x = F.pad(x, (0, 0, 0, -len(x) % EVEN))
        for layer, own, source in zip(self.layers, state.own, state.sources, strict=True):
            x = layer.read(x, beams, replace(own, hidden=state.others), source, at)
        norm: Product | None = self.model.decoder.norm
        return x if norm is None else norm(x)


class _Layer:
    """A block's products, and what stands between them, for rows x (B W or more, M)."""

    def __init__(self, block: Any, stack: StackConfig) -> None:
        self.pre, self.width = stack.norm_at == "pre", stack.head_width
        self.scale = stack.scale or stack.head_width**-0.5
        self.qkv, self.out = _product(block.attention.qkv), _product(block.attention.out)
        self.q, self.q_out = _product(block.cross.q), _product(block.cross.out)
        self.up, self.down = _product(block.ffn.up), _product(block.ffn.down)
        self.activation, self.gated = block.ffn.activation, block.ffn.gated
        self.norms = block.residual1.norm, block.residual_cross.norm, block.residual2.norm

    def read(self, x: Tensor, beams: int, own: Cells, source: Cells, at: int) -> Tensor:
        """New tokens take their cells, from `at` on, and look at all before; then at the source."""

        def look(x: Tensor) -> Tensor:
            q, k, v = self._apart(self.qkv(x), beams, own).chunk(3, 1)
            end = at + beams
            own.keys[:, :, at:end], own.values[:, :, at:end] = k, v
            return self.out(self._mix(q, own.upto(end), len(x)))

        def across(x: Tensor) -> Tensor:
            return self.q_out(self._mix(self._apart(self.q(x), beams, source), source, len(x)))

        x = self._join(x, self.norms[0], look)
        x = self._join(x, self.norms[1], across)
        return self._join(x, self.norms[2], self._feed_forward)

    def _join(self, x: Tensor, norm: Product, branch: Product) -> Tensor:
        return x + branch(norm(x)) if self.pre else norm(x + branch(x))

    def _apart(self, x: Tensor, beams: int, cells: Cells) -> Tensor:
        """The rows that are not empty, n H D wide, as (B, n H, W, D)."""
        inputs = len(cells.keys)
        return x[: inputs * beams].view(inputs, beams, -1, self.width).transpose(1, 2)

    def _mix(self, q: Tensor, cells: Cells, rows: int) -> Tensor:
        """What queries (B, H, W, D) make of values, as so many rows, H D wide, the last of them empty."""
        scores = (q * self.scale) @ cells.keys.transpose(-1, -2)
        if cells.hidden is not None:
            scores.masked_fill_(cells.hidden, -torch.inf)
        mixed = (scores.softmax(-1) @ cells.values).transpose(1, 2).flatten(2).flatten(0, 1)
        return mixed if len(mixed) == rows else F.pad(mixed, (0, 0, 0, rows - len(mixed)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.gated:
            gate, x = x.chunk(2, -1)
            return self.down(activation(self.activation, gate) * x)
        return self.down(activation(self.activation, x))


def _matrix(linear: Any) -> tuple[Tensor, Tensor | None]:
    """A weight, made floats where it is whole numbers, and its bias (N, 1)."""
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()[:, None]


def _product(linear: Any) -> Product:
    """The linear map of rows, with what comes out laid out by columns."""
    weight, bias = _matrix(linear)

    def product(x: Tensor) -> Tensor:
        y = torch.mm(weight, x.T)
        if bias is not None:
            y += bias
        return y.T

    return product
