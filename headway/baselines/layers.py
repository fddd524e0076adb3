"""Recurrent layers one by one, for what torch's kernels of all layers cannot do: shared masks, dropped weights, norms.

Each layer still runs in torch's own kernel for whole texts, with the dropped weights as its argument. Only norms inside
the cells need a loop over the tokens.
Letters: B batch, T tokens, L layers, M width, G gates, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.config.networks.baseline import BaselineConfig

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
KERNELS: dict[str, Any] = {"RNN_TANH": torch.rnn_tanh, "GRU": torch.gru, "LSTM": torch.lstm}
"""One layer over whole texts, by torch's name for the kind of cell."""
GATES = {"elman": 1, "gru": 3, "lstm": 4}

Hidden = tuple[Tensor, ...]
"""Tensors (L, B, M): the hidden state, and of an LSTM also its cell."""


class CellNorm(nn.Module):
    """The norms of one layer: of what the input and the state add to the gates, and of an LSTM's cell."""

    def __init__(self, network: str, width: int) -> None:
        super().__init__()
        self.inputs = nn.LayerNorm(GATES[network] * width, bias=False)  # the cells have biases
        self.state = nn.LayerNorm(GATES[network] * width, bias=False)
        self.cell = nn.LayerNorm(width) if network == "lstm" else nn.Identity()


def drop(x: Tensor, p: float, *, locked: bool) -> Tensor:
    """Dropout of x (B, T, M) in training; a locked mask is the same for all tokens of a row."""
    if not locked or not p:
        return F.dropout(x, p)
    return x * F.dropout(x.new_ones(len(x), 1, x.shape[-1]), p)


def word_mask(table: Tensor, p: float) -> Tensor:
    """(V, 1): which words keep their vectors in this batch, with the factor that keeps the mean."""
    return F.dropout(table.new_ones(len(table), 1), p)


def run_layers(
    cells: nn.RNNBase,
    x: Tensor,
    attention_mask: Tensor | None,
    hidden: Hidden,
    config: BaselineConfig,
    norms: nn.ModuleList | None,
) -> tuple[Tensor, Hidden]:
    """As `run_cells`. In training without norms rows have no padding."""
    after, training = [], cells.training
    for layer in range(cells.num_layers):
        if layer and training:
            x = drop(x, config.between, locked=config.locked_dropout)
        weights = _weights(cells, layer, config.weight_dropout if training else 0.0)
        before = tuple(h[layer] for h in hidden)
        if norms is None:
            assert attention_mask is None, "training rows of recurrent language models have no padding"
            x, last = _run_kernel(cells.mode, x, before, weights)
        else:
            x, last = _run_normed(cells.mode, x, attention_mask, before, weights, norms[layer])
        after.append(last)
    return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))


def _weights(cells: nn.RNNBase, layer: int, p: float) -> list[Tensor]:
    """The weights of a layer, of which those from state to state are dropped."""
    found: list[Tensor] = [getattr(cells, f"{name}_l{layer}") for name in WEIGHTS]
    found[1] = F.dropout(found[1], p)
    if found[1].is_cuda:  # cuDNN wants the weights of a call in one piece of memory, and warns if it has to copy them
        flat = torch.cat([weight.flatten() for weight in found])
        found = [part.view_as(w) for part, w in zip(flat.split([w.numel() for w in found]), found, strict=True)]
    return found


def _run_kernel(mode: str, x: Tensor, hidden: Hidden, weights: list[Tensor]) -> tuple[Tensor, Hidden]:
    states = tuple(h[None] for h in hidden)
    y, *after = KERNELS[mode](
        x, states if len(states) > 1 else states[0], weights, True, 1, 0.0, True, False, batch_first=True
    )
    return y, tuple(h[0] for h in after)


def _run_normed(
    mode: str, x: Tensor, attention_mask: Tensor | None, hidden: Hidden, weights: list[Tensor], norm: nn.Module
) -> tuple[Tensor, Hidden]:
    assert isinstance(norm, CellNorm)
    w, v, b, c = weights
    inputs, outputs = norm.inputs(F.linear(x, w)) + b, []
    for t in range(x.shape[1]):
        new = _step(mode, inputs[:, t], norm.state(F.linear(hidden[0], v)) + c, hidden, norm)
        if attention_mask is not None:
            real = (attention_mask[:, t] != 0)[:, None]
            hidden = tuple(torch.where(real, a, old) for a, old in zip(new, hidden, strict=True))
            outputs.append(new[0] * real)
        else:
            hidden = new
            outputs.append(new[0])
    return torch.stack(outputs, 1), hidden


def _step(mode: str, inputs: Tensor, state: Tensor, hidden: Hidden, norm: CellNorm) -> Hidden:
    """One token: what the input and the state add to the gates (B, G·M), to the next state."""
    if mode == "RNN_TANH":
        return (torch.tanh(inputs + state),)
    if mode == "GRU":
        (r, z, n), (hr, hz, hn) = inputs.chunk(3, -1), state.chunk(3, -1)
        reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
        return (torch.lerp(torch.tanh(n + reset * hn), hidden[0], update),)
    i, f, g, o = (inputs + state).chunk(4, -1)
    cell = torch.sigmoid(f) * hidden[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(norm.cell(cell)), cell
