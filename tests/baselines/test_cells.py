"""The equations of the lectures, written out, against torch's kernels; and the attentions against theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.baselines.recurrent import Recurrent, make_attention, run_cells
from tests.baselines.conftest import SOURCE_VOCAB, VOCAB, small

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of a layer: from the input, from the state, and a bias each."""


def elman(x: Tensor, state: list[Tensor], w: Weights) -> list[Tensor]:
    """h = tanh(W x + V h + b)."""
    return [torch.tanh(w[0] @ x + w[2] + w[1] @ state[0] + w[3])]


def gru(x: Tensor, state: list[Tensor], w: Weights) -> list[Tensor]:
    """Reset, update, candidate: h = (1 - z) n + z h. The reset gate is applied after the product."""
    (r, z, n), (hr, hz, hn) = (w[0] @ x + w[2]).chunk(3), (w[1] @ state[0] + w[3]).chunk(3)
    r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    n = torch.tanh(n + r * hn)
    return [(1 - z) * n + z * state[0]]


def lstm(x: Tensor, state: list[Tensor], w: Weights) -> list[Tensor]:
    """Input, forget, candidate, output: c = f c + i g, h = o tanh(c)."""
    h, c = state
    i, f, g, o = (w[0] @ x + w[2] + w[1] @ h + w[3]).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


STEP = {"elman": elman, "gru": gru, "lstm": lstm}


def layer_weights(cells: Any, layer: int, suffix: str = "") -> Weights:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    a, b, c, d = (getattr(cells, f"{name}_l{layer}{suffix}").detach() for name in names)
    return a, b, c, d


def slow(network: str, cells: Any, xs: list[Tensor], state: list[list[Tensor]]) -> tuple[list[Tensor], list[Any]]:
    """Layer by layer, token by token: outputs, and the last state of each layer."""
    after = []
    for layer, held in enumerate(state):
        found = []
        for x in xs:
            held = STEP[network](x, held, layer_weights(cells, layer))
            found.append(held[0])
        xs = found
        after.append(held)
    return xs, after


@pytest.mark.parametrize("network", STEP)
@given(attention_mask=st.lists(st.booleans(), min_size=1, max_size=7))
@settings(max_examples=25)
def test_cells_are_the_equations(network: str, attention_mask: list[bool]) -> None:
    """With padding anywhere: it is as if it were not there."""
    model = small(network, False)
    assert isinstance(model, Recurrent)
    x = torch.randn(1, len(attention_mask), 8, dtype=torch.double)
    count = 2 if network == "lstm" else 1
    hidden = tuple(torch.randn(2, 1, 8, dtype=torch.double) for _ in range(count))
    ys, after = slow(
        network,
        model.writer,
        [v for v, real in zip(x[0], attention_mask, strict=True) if real],
        [[h[layer, 0] for h in hidden] for layer in range(2)],
    )
    y, got = run_cells(model.writer, x, torch.tensor([attention_mask]), hidden)
    if ys:
        torch.testing.assert_close(y[0][torch.tensor(attention_mask)], torch.stack(ys))
    assert not y[0][~torch.tensor(attention_mask)].any()
    for k in range(count):
        torch.testing.assert_close(got[k][:, 0], torch.stack([held[k] for held in after]))


@pytest.mark.parametrize("network", STEP)
def test_one_token_at_a_time(network: str) -> None:
    """Another kernel, the same equations."""
    model = small(network, False)
    assert isinstance(model, Recurrent)
    x = torch.randn(3, 5, 8, dtype=torch.double)
    hidden = start = tuple(torch.randn(2, 3, 8, dtype=torch.double) for _ in range(2 if network == "lstm" else 1))
    whole, end = run_cells(model.writer, x, None, start)
    for t in range(5):
        y, hidden = run_cells(model.writer, x[:, t : t + 1], None, hidden)
        torch.testing.assert_close(y[:, 0], whole[:, t])
    for a, b in zip(hidden, end, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("tokens", [1, 3])
def test_dropout_between_layers(tokens: int) -> None:
    """In training only; and there is none in a single layer."""
    x, hidden = torch.randn(4, tokens, 8, dtype=torch.double), (torch.zeros(2, 4, 8, dtype=torch.double),)
    model = small("gru", False, dropout=0.5)
    assert isinstance(model, Recurrent)
    (a, _), (b, _) = (run_cells(model.writer, x, None, hidden) for _ in range(2))
    assert torch.equal(a, b)
    model.train()
    (a, _), (b, _) = (run_cells(model.writer, x, None, hidden) for _ in range(2))
    assert not torch.equal(a, b)
    single = small("gru", False, dropout=0.5, depth=1).train()
    (a, _), (b, _) = (run_cells(single.writer, x, None, (hidden[0][:1],)) for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize("network", STEP)
def test_both_directions(network: str) -> None:
    """One layer: the second direction is the same equations on the text reversed; the decoder starts from both ends."""
    model = small(network, bidirectional=True, depth=1)
    assert isinstance(model, Recurrent)
    ids = torch.randint(SOURCE_VOCAB, (6,))
    x = model.source.table(ids)
    ends = []
    for suffix, text in (("", x), ("_reverse", x.flip(0))):
        held = [torch.zeros(4, dtype=torch.double)] * (2 if network == "lstm" else 1)
        for v in text:
            held = STEP[network](v, held, layer_weights(model.reader, 0, suffix))
        ends.append(held)
    state = model.start(ids[None], capacity=9)
    for k, got in enumerate(state.hidden):
        torch.testing.assert_close(got[0, 0], torch.cat([ends[0][k], ends[1][k]]))


@pytest.mark.parametrize("kind", ["dot", "general", "additive"])
def test_attention_is_its_formula(kind: Any) -> None:
    attention = make_attention(kind, 8).double()
    queries, memory = torch.randn(1, 3, 8, dtype=torch.double), torch.randn(1, 5, 8, dtype=torch.double)
    scores = attention(queries, attention.keys(memory))
    weights = {name: p.detach() for name, p in attention.named_parameters()}
    for t in range(3):
        for s in range(5):
            q, m = queries[0, t], memory[0, s]
            if kind == "dot":
                right = q @ m
            elif kind == "general":
                right = q @ weights["key.weight"] @ m
            else:
                inner = weights["query.weight"] @ q + weights["key.weight"] @ m + weights["key.bias"]
                right = weights["score.weight"][0] @ torch.tanh(inner)
            torch.testing.assert_close(scores[0, t, s], right)


def test_bahdanau_step_by_step() -> None:
    """The top state before a token chooses, what it chose is read beside the token, and both make the output."""
    model = small("gru", attention="additive", depth=2)
    assert isinstance(model, Recurrent)
    source, target = torch.randint(SOURCE_VOCAB, (5,)), torch.randint(VOCAB, (4,))
    zero = torch.zeros(8, dtype=torch.double)
    states, held = slow("gru", model.reader, list(model.source.table(source)), [[zero], [zero]])
    memory, found = torch.stack(states), []
    for x in model.target.table(target):
        scores = model.attention(held[-1][0][None, None], model.attention.keys(memory[None]))[0, 0]
        context = scores.softmax(-1) @ memory
        (y,), held = slow("gru", model.writer, [torch.cat([x, context])], held)
        found.append(torch.tanh(model.join(torch.cat([context, y]))))
    torch.testing.assert_close(model(source[None], target[None]).hidden[0], torch.stack(found))


@pytest.mark.parametrize("network", STEP)
def test_cho_step_by_step(network: Any) -> None:
    """What the source left starts the decoder, is read beside every token, and makes the output with the state."""
    model = small(network, context=True, depth=2)
    assert isinstance(model, Recurrent)
    source, target = torch.randint(SOURCE_VOCAB, (5,)), torch.randint(VOCAB, (4,))
    zeros = [torch.zeros(8, dtype=torch.double)] * (2 if network == "lstm" else 1)
    states, held = slow(network, model.reader, list(model.source.table(source)), [zeros, zeros])
    context = states[-1]
    outputs, _ = slow(network, model.writer, [torch.cat([x, context]) for x in model.target.table(target)], held)
    found = [torch.tanh(model.join(torch.cat([context, y]))) for y in outputs]
    torch.testing.assert_close(model(source[None], target[None]).hidden[0], torch.stack(found))


def test_luong_step_by_step() -> None:
    """The state after a token chooses; what it chose does not come back into the state."""
    model = small("lstm", attention="general", depth=1)
    assert isinstance(model, Recurrent)
    source, target = torch.randint(SOURCE_VOCAB, (5,)), torch.randint(VOCAB, (4,))
    zero = torch.zeros(8, dtype=torch.double)
    states, held = slow("lstm", model.reader, list(model.source.table(source)), [[zero, zero]])
    memory = torch.stack(states)
    outputs, _ = slow("lstm", model.writer, list(model.target.table(target)), held)
    found = []
    for h in outputs:
        context = model.attention(h[None, None], model.attention.keys(memory[None]))[0, 0].softmax(-1) @ memory
        found.append(torch.tanh(model.join(torch.cat([context, h]))))
    torch.testing.assert_close(model(source[None], target[None]).hidden[0], torch.stack(found))


def test_how_weights_start() -> None:
    """Orthogonal from state to state, gate by gate; an LSTM begins by remembering."""
    from headway.baselines.build import make_model
    from tests.baselines.conftest import small_config

    writer = make_model(small_config("lstm", False)).writer
    for gate in writer.weight_hh_l1.split(8):
        torch.testing.assert_close(gate @ gate.T, torch.eye(8))
    bias = (writer.bias_ih_l0 + writer.bias_hh_l0).detach().split(8)
    assert [float(part.mean()) for part in bias] == [0.0, 1.0, 0.0, 0.0]
