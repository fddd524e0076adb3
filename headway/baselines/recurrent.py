"""Recurrent networks: a language model, or an encoder–decoder with or without attention.

The state is all that the network knows of the past, so tokens are processed one after the other. torch's kernels do
this on packed sequences, without padding. Modules are called `reader` and `writer` because saved files call them so.
Letters: B batch, T tokens or queries, S source tokens, L layers, M width, E width of the word vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headway.baselines.base import Baseline, initialise_embeddings, masked_softmax, refuse_packing
from headway.baselines.layers import WEIGHTS, CellNorm, Hidden, drop, run_layers, word_mask
from headway.config.networks.baseline import BaselineConfig
from headway.model.attention import Hook
from headway.model.model import Output

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELL_STEP: dict[str, Any] = {"RNN_TANH": torch.rnn_tanh_cell, "GRU": torch.gru_cell, "LSTM": torch.lstm_cell}
"""One step of one layer, by torch's name for the kind of cell."""


@dataclass
class Memory:
    """An encoded source for attention."""

    states: Tensor
    """(B, S, M)"""
    keys: Tensor
    """(B, S, M), see `make_attention`."""
    attention_mask: Tensor | None

    def take(self, rows: Tensor) -> Memory:
        return Memory(
            self.states[rows], self.keys[rows], None if self.attention_mask is None else self.attention_mask[rows]
        )


@dataclass
class State:
    """The decoding state: without attention, a few vectors for a source of any length."""

    hidden: Hidden
    memory: Memory | None = None
    context: Tensor | None = None
    """(B, 1, M): the encoder's last state, if it is an input at every token."""


class Additive(nn.Module):
    """v · tanh(W q + U k): a small network compares the two (Bahdanau et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Keys (B, S, M), computed once for all queries."""
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Queries (B, T, M) to attention scores (B, T, S)."""
        scores: Tensor = self.score(torch.tanh(self.query(queries)[:, :, None] + keys[:, None]))
        return scores[..., 0]


class Multiplicative(nn.Module):
    """q · k, or q · W k where `general` (Luong et al. 2015)."""

    def __init__(self, width: int, general: bool) -> None:
        super().__init__()
        self.key: nn.Module = nn.Linear(width, width, bias=False) if general else nn.Identity()

    def keys(self, memory: Tensor) -> Tensor:
        keys: Tensor = self.key(memory)
        return keys

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.mT


def make_attention(kind: Literal["additive", "dot", "general"], width: int) -> Additive | Multiplicative:
    return Additive(width) if kind == "additive" else Multiplicative(width, general=kind == "general")


class Recurrent(Baseline[State]):
    """Elman network, GRU or LSTM, with or without attention, as `config` says."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        width, kind, words = config.width, config.attention, config.word_width
        self.additive = kind == "additive"
        fed = 2 * width if self.additive or config.context else words  # the context of the source is an input too
        if config.source is not None:
            self.reader = _cells(config, width, width // (2 if config.bidirectional else 1), config.bidirectional)
        self.writer = _cells(config, fed, width)
        norms = (CellNorm(config.network, width) for _ in range(config.depth))
        self.norms = nn.ModuleList(norms) if config.cell_norm else None
        self.project = nn.Linear(width, words) if words != width else None
        if kind != "none":
            self.attention = make_attention(kind, width)
        if kind != "none" or config.context:
            self.join = nn.Linear(2 * width, width)
        _initialise(self)

    def initial_state(self, rows: int, device: torch.device) -> State:
        like = next(self.writer.parameters())
        zeros = torch.zeros(self.config.depth, rows, self.config.width, device=device, dtype=like.dtype)
        return State((zeros, zeros) if self.config.network == "lstm" else (zeros,))

    def encode_source(self, inputs: Tensor, attention_mask: Tensor | None) -> State:
        x = self.source(inputs, attention_mask).x
        with _without_autocast(x):
            states, hidden = run_cells(self.reader, x.to(next(self.reader.parameters()).dtype), attention_mask)
            if self.config.bidirectional:  # layer by layer, first one direction, then the other
                hidden = tuple(torch.cat([h[0::2], h[1::2]], -1) for h in hidden)
            if self.config.attention == "none":
                return State(hidden, context=hidden[0][-1][:, None] if self.config.context else None)
            states = F.dropout(states, self.config.dropout, self.training)
            return State(hidden, Memory(states, self.attention.keys(states), attention_mask))

    def decode(self, state: State, ids: Tensor, attention_mask: Tensor | None, hook: Hook | None = None) -> Tensor:
        if self.config.source is None:
            return self._language(state, ids, attention_mask)[0]
        embedded = self.target(ids, attention_mask).x
        with _without_autocast(embedded):
            x = embedded.to(next(self.writer.parameters()).dtype)
            memory = state.memory
            if state.context is not None:
                context = state.context.expand_as(x)
                y, state.hidden = run_cells(self.writer, torch.cat([x, context], -1), attention_mask, state.hidden)
                y = self._joined(context, y)
            elif memory is None:
                y, state.hidden = run_cells(self.writer, x, attention_mask, state.hidden)
            else:
                attend = self._bahdanau if self.additive else self._luong
                y, weights = attend(state, memory, x, attention_mask)
                if hook is not None:
                    hook(f"decoder.blocks.{self.config.depth - 1}.cross.weights", lambda heads=None: weights[:, None])
            y = F.dropout(y, self.config.dropout, self.training)
        return y.to(embedded.dtype)

    def first_carry(self, rows: int) -> Hidden:
        if self.config.source is not None:
            return ()
        return _rows_first(self.initial_state(rows, next(self.parameters()).device).hidden)

    def read_on(self, ids: Tensor, mask: Tensor | None = None, carry: Any = ()) -> tuple[Output, Any]:
        if self.config.source is not None:
            return super().read_on(ids, mask)
        refuse_packing(mask)
        state = State(_rows_first(carry)) if carry else self.initial_state(len(ids), ids.device)
        hidden, penalty = self._language(state, ids, mask)
        return Output(hidden, mask, penalty=penalty), _rows_first(state.hidden)

    def _language(self, state: State, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What a language model computes logits of (B, T, E), and its penalty; updates the state."""
        config, training = self.config, self.training
        embedded = self.target(ids, mask).x
        if training and config.word_dropout:
            embedded = embedded * word_mask(self.target.table.weight, config.word_dropout)[ids].to(embedded.dtype)
        if training and config.locked_dropout:
            embedded = drop(embedded, config.input_dropout, locked=True)
        with _without_autocast(embedded):
            x = embedded.to(next(self.writer.parameters()).dtype)
            if self.norms is not None or (training and (config.locked_dropout or config.weight_dropout)):
                y, state.hidden = run_layers(self.writer, x, mask, state.hidden, config, self.norms)
            else:
                y, state.hidden = run_cells(self.writer, x, mask, state.hidden)
            dropped = drop(y, config.dropout, locked=config.locked_dropout) if training else y
            penalty = _penalty(config, y, dropped) if training else None
            out = dropped if self.project is None else self.project(dropped)
        return out.to(embedded.dtype), penalty

    def _luong(self, state: State, memory: Memory, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Luong's decoder: attention does not change the states, so all states are computed first."""
        y, state.hidden = run_cells(self.writer, x, mask, state.hidden)
        weights = masked_softmax(self.attention(y, memory.keys), memory.attention_mask)  # B T S
        return self._joined(weights @ memory.states, y), weights

    def _bahdanau(self, state: State, memory: Memory, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Bahdanau's decoder: the previous state attends to the source, and the result is an input with the token."""
        outputs, maps = [], []
        for t, token in enumerate(x.split(1, 1)):  # B 1 M
            query = state.hidden[0][-1][:, None]
            weights = masked_softmax(self.attention(query, memory.keys), memory.attention_mask)  # B 1 S
            context = weights @ memory.states
            y, hidden = _run(self.writer, torch.cat([token, context], -1), state.hidden)
            state.hidden = hidden if mask is None else _where(mask[:, t] != 0, hidden, state.hidden)
            outputs.append(self._joined(context, y))
            maps.append(weights)
        return torch.cat(outputs, 1), torch.cat(maps, 1)

    def _joined(self, context: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(self.join(torch.cat([context, y], -1)))

    def reorder(self, state: State, /, rows: Tensor) -> State:
        memory = None if state.memory is None else state.memory.take(rows)
        context = None if state.context is None else state.context[rows]
        return State(tuple(h[:, rows] for h in state.hidden), memory, context)


def _penalty(config: BaselineConfig, y: Tensor, dropped: Tensor) -> Tensor | None:
    """Activation regularisation of the outputs after dropout, and temporal of those before (Merity et al. 2018)."""
    terms = []
    if config.ar:
        terms.append(config.ar * dropped.float().square().mean())
    if config.tar and y.shape[1] > 1:
        terms.append(config.tar * y.diff(dim=1).float().square().mean())
    return sum(terms[1:], terms[0]) if terms else None


def _rows_first(hidden: Hidden) -> Hidden:
    """(L, B, M) to (B, L, M), and back."""
    return tuple(h.transpose(0, 1).contiguous() for h in hidden)


def run_cells(
    cells: nn.RNNBase, x: Tensor, attention_mask: Tensor | None, hidden: Hidden | None = None
) -> tuple[Tensor, Hidden]:
    """Outputs (B, T, M) of the top layer, and the states after each row's last real token.

    Real tokens are moved to the front and packed, so padding can be anywhere. Outputs at padding are zero.
    """
    if attention_mask is None:
        return _run(cells, x, hidden)
    real = attention_mask != 0
    counts, order = real.sum(1), (~real).to(torch.uint8).argsort(dim=1, stable=True)
    moved = x.gather(1, order[..., None].expand_as(x))
    lengths = counts.clamp(min=1).cpu()  # a row of only padding: its result is dropped below
    packed = pack_padded_sequence(moved, lengths, batch_first=True, enforce_sorted=False)
    out, after = cells(packed, _for_torch(hidden))
    y, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
    back = order.argsort(1)[..., None].expand(-1, -1, y.shape[-1])
    states = after if isinstance(after, tuple) else (after,)
    before = hidden or tuple(torch.zeros_like(h) for h in states)
    return y.gather(1, back) * real[..., None], _where(counts > 0, states, before)


def _run(cells: nn.RNNBase, x: Tensor, hidden: Hidden | None) -> tuple[Tensor, Hidden]:
    if hidden is not None and x.shape[1] == 1:
        return _cell_step(cells, x, hidden)
    y, after = cells(x, _for_torch(hidden))
    return y, after if isinstance(after, tuple) else (after,)


def _cell_step(cells: nn.RNNBase, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
    """The same for one token, more than twice as fast: the kernels for whole texts have a set-up cost."""
    y, after = x[:, 0], []
    for layer in range(cells.num_layers):
        if layer:
            y = F.dropout(y, cells.dropout, cells.training)
        weights = (getattr(cells, f"{name}_l{layer}") for name in WEIGHTS)
        found = CELL_STEP[cells.mode](y, _for_torch(tuple(h[layer] for h in hidden)), *weights)
        after.append(found if isinstance(found, tuple) else (found,))
        y = after[-1][0]
    return y[:, None], tuple(torch.stack(parts) for parts in zip(*after, strict=True))


def _for_torch(hidden: Hidden | None) -> Tensor | Hidden | None:
    """torch takes an LSTM's state as a pair, and any other state as one tensor."""
    return hidden[0] if hidden is not None and len(hidden) == 1 else hidden


def _where(rows: Tensor, new: Hidden, old: Hidden) -> Hidden:
    return tuple(torch.where(rows[None, :, None], a, b) for a, b in zip(new, old, strict=True))


def _cells(config: BaselineConfig, fed: int, width: int, both: bool = False) -> nn.RNNBase:
    dropout = config.between if config.depth > 1 else 0.0
    return CELLS[config.network](fed, width, config.depth, batch_first=True, dropout=dropout, bidirectional=both)


@contextmanager
def _without_autocast(x: Tensor) -> Iterator[None]:
    """Switch autocast off: it would use half precision here, and rounding errors add up from token to token."""
    with torch.autocast(x.device.type, enabled=False):
        yield


@torch.no_grad()
def _initialise(model: Recurrent) -> None:
    """Recurrent matrices start orthogonal, so that gradients neither vanish nor explode at first (Saxe et al. 2014).

    The bias of an LSTM's forget gate starts at one, so that it remembers (Jozefowicz et al. 2015).
    """
    initialise_embeddings(model, model.config.word_width**-0.5)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.lm.output:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.RNNBase):
            width = module.hidden_size
            for name, parameter in module.named_parameters():
                if name.startswith("bias"):
                    parameter.zero_()
                    if isinstance(module, nn.LSTM) and name.startswith("bias_ih"):
                        parameter[width : 2 * width] = 1.0  # input, forget, cell, output
                else:
                    start = nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_
                    for gate in parameter.split(width):
                        start(gate)
