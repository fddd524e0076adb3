"""How far gradients reach: the norm of ∂loss_t/∂h_(t-k) by k, and the spectral radii of recurrent matrices.

h is what the network hands from token to token: of a recurrent network its states in all layers (of an LSTM its cells
as well), of other networks the vectors of the input tokens. The gradient of a recurrent network is a product of one
Jacobian per token, so that it vanishes or explodes with the largest eigenvalue of the matrix from state to state;
attention reaches each token in one step.
Letters: B windows, T tokens, L layers, M width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.data.batching.windows import Tokens
from headway.front.embedded import Embedded
from headway.model.model import Model
from headway.tasks.losses.tokens import upcast

WINDOWS, REACH = 16, 128
"""Windows of the held-out text, and the tokens of each."""
SQUARINGS = 24
TITLE = "how far gradients reach: norm of ∂loss(t)/∂h(t-k)"
GATES = {"RNN_TANH": ("",), "GRU": ("reset", "update", "new"), "LSTM": ("input", "forget", "cell", "output")}
"""The gates of a cell, in the order of torch's matrices."""


def gradient_details(model: Model, ids: Tokens, length: int) -> dict[str, Any] | None:
    """What the report shows: the curve and the radii; None if the text is too short or no model of a text."""
    limit = model.config.max_length
    length = min(REACH, len(ids) - 1, max(length, REACH) if limit is None else limit)
    if length < 2:
        return None
    inputs, targets = held_out_windows(ids, length)
    device = next(model.parameters()).device
    reach = gradient_reach(model, torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))
    line = {"name": getattr(model.config, "network", "transformer"), "y": [float(f"{value:.6g}") for value in reach]}
    chart = {"title": TITLE, "x_name": "tokens back (k)", "first": 1, "step": 1, "log": True, "lines": [line]}
    matrices = [
        {"matrix": name, "spectral_radius": round(spectral_radius(matrix), 6)}
        for name, matrix in recurrent_matrices(model)
    ]
    return {"examples": len(inputs), "details": {"charts": [chart], "recurrent_matrices": matrices}}


def held_out_windows(ids: Tokens, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some windows of a text at equal distances (B, T), and the token after each (B,)."""
    starts = np.unique(np.linspace(0, len(ids) - length - 1, WINDOWS).astype(np.int64))
    found = ids[starts[:, None] + np.arange(length + 1)].astype(np.int64)
    return np.ascontiguousarray(found[:, :-1]), np.ascontiguousarray(found[:, -1])


def gradient_reach(model: Model, inputs: Tensor, targets: Tensor) -> list[float]:
    """For k = 1 … T-1 the mean over windows of the norm of ∂loss/∂h_(T-1-k); the loss is that of the last token."""
    was_training = model.training
    model.eval()
    try:
        with torch.enable_grad(), torch.autocast(inputs.device.type, enabled=False):
            states, hidden = _by_state(model, inputs) if model.first_carry(1) else _by_input(model, inputs)
            loss = F.cross_entropy(upcast(model.lm(hidden)), targets, reduction="sum")
            found = torch.autograd.grad(loss, [part for state in states for part in state], allow_unused=True)
    finally:
        model.train(was_training)
    parts, none = len(states[0]), inputs.new_zeros(len(inputs), dtype=torch.float64)  # none: out of a window's sight
    squares = [none if g is None else g.double().flatten(1).square().sum(1) for g in found]  # (B,) each
    norms = [torch.stack(squares[at : at + parts]).sum(0).sqrt().mean() for at in range(0, len(squares), parts)]
    return torch.stack(norms).flip(0).tolist()


def _by_state(model: Model, inputs: Tensor) -> tuple[list[tuple[Tensor, ...]], Tensor]:
    """The states after each token but the last (of a recurrent network), and the last output (B, M).

    One token at a time: torch's kernels for whole texts do not show the states between, and cuDNN's have no gradient
    outside training.
    """
    carry, states = model.first_carry(len(inputs)), []
    for ids in inputs.split(1, 1):
        output, carry = model.read_on(ids, None, carry)
        states.append(carry)
    return states[:-1], output.hidden[:, -1]


def _by_input(model: Model, inputs: Tensor) -> tuple[list[tuple[Tensor, ...]], Tensor]:
    """The vectors of all input tokens but the last, and the last output (B, M)."""
    with _separate_tokens(model) as tokens:
        hidden = model(inputs).hidden[:, -1]
    return [(token,) for token in tokens[:-1]], hidden


@contextmanager
def _separate_tokens(model: Model) -> Iterator[list[Tensor]]:
    """Cut the graph at the input of the first layer; the tokens' vectors (B, 1, M) appear in the list."""
    tokens: list[Tensor] = []

    def cut(module: nn.Module, args: Any, front: Embedded) -> Embedded:
        tokens.extend(token.detach().requires_grad_() for token in front.x.split(1, 1))
        return replace(front, x=torch.cat(tokens, 1))

    handle = model.target.register_forward_hook(cut)
    try:
        yield tokens
    finally:
        handle.remove()


def recurrent_matrices(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Each matrix from state to state of a recurrent network, by its layer and gate."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            for layer in range(module.num_layers):
                whole = cast(Tensor, getattr(module, f"weight_hh_l{layer}")).detach()
                for gate, matrix in zip(GATES[module.mode], whole.split(module.hidden_size), strict=True):
                    yield f"layer {layer + 1}{', ' if gate else ''}{gate}", matrix


def spectral_radius(matrix: Tensor) -> float:
    """The largest absolute value of an eigenvalue, as the limit of ‖Aⁿ‖^(1/n) (Gelfand 1941).

    Squaring doubles n, and products are fast on any device; a solver needs seconds for each matrix of an LSTM.
    """
    power, logarithm = matrix.double(), 0.0
    for doubled in range(SQUARINGS + 1):
        norm = float(torch.linalg.matrix_norm(power))
        if norm == 0 or not math.isfinite(norm):
            return norm
        logarithm += math.log(norm) / 2**doubled
        power = power / norm
        power = power @ power
    return math.exp(logarithm)
