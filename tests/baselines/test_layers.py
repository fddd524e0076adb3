"""Recurrent layers one by one: equal to torch's kernels of all layers, and dropout and norms as their papers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.baselines.layers import drop, run_layers, word_mask
from headway.baselines.recurrent import Recurrent, run_cells
from headway.config.model import LMHeadConfig
from headway.errors import ConfigError
from tests.baselines.conftest import VOCAB, small, small_config

NETWORKS = ("elman", "gru", "lstm")


def model_of(network: str, **settings: Any) -> Recurrent:
    model = small(network, False, **settings)
    assert isinstance(model, Recurrent)
    return model


def start(network: str, rows: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    x = torch.randn(rows, 5, 8, dtype=torch.double)
    return x, tuple(torch.randn(2, rows, 8, dtype=torch.double) for _ in range(2 if network == "lstm" else 1))


@pytest.mark.parametrize("network", NETWORKS)
def test_layer_by_layer_is_all_at_once(network: str) -> None:
    """Outputs, states and gradients, where nothing is dropped."""
    model, (x, hidden) = model_of(network).train(), start(network, 3)
    found = []
    for run in (lambda: run_layers(model.writer, x, None, hidden, model.config, None),
                lambda: run_cells(model.writer, x, None, hidden)):  # fmt: skip
        model.zero_grad()
        y, after = run()
        (y.square().sum() + sum(h.sum() for h in after)).backward()
        found.append([y, *after, *(p.grad.clone() for p in model.writer.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 8
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("network", NETWORKS)
def test_dropped_weights_are_the_same_for_all_tokens(network: str) -> None:
    """A step of the network with the dropped matrix, written as a module of its own."""
    model, (x, hidden) = model_of(network, depth=1).train(), start(network, 3)
    hidden = tuple(h[:1] for h in hidden)
    torch.manual_seed(5)
    y, _ = run_layers(model.writer, x, None, hidden, replace(model.config, weight_dropout=0.5), None)
    torch.manual_seed(5)
    with torch.no_grad():
        model.writer.weight_hh_l0.copy_(F.dropout(model.writer.weight_hh_l0, 0.5))
    assert 0.2 < float((model.writer.weight_hh_l0 == 0).double().mean()) < 0.8
    torch.testing.assert_close(y, run_cells(model.writer, x, None, hidden)[0])


def literal(network: str, model: Recurrent, x: Tensor, held: list[list[Tensor]]) -> list[Tensor]:
    """Token by token and layer by layer, with layer norms written out."""

    def norm(v: Tensor, weight: Tensor, bias: Any = 0.0) -> Tensor:
        return (v - v.mean()) / (v.var(unbiased=False) + 1e-5).sqrt() * weight + bias

    outputs = []
    for token in x:
        for layer, state in enumerate(held):
            w, v, b, c = (
                getattr(model.writer, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            norms: Any = model.norms[layer]  # type: ignore[index]
            i, s = norm(w @ token, norms.inputs.weight) + b, norm(v @ state[0], norms.state.weight) + c
            if network == "elman":
                new = [torch.tanh(i + s)]
            elif network == "gru":
                reset, update = torch.sigmoid(i[:8] + s[:8]), torch.sigmoid(i[8:16] + s[8:16])
                new = [(1 - update) * torch.tanh(i[16:] + reset * s[16:]) + update * state[0]]
            else:
                gates = (i + s).split(8)
                cell = torch.sigmoid(gates[1]) * state[1] + torch.sigmoid(gates[0]) * torch.tanh(gates[2])
                new = [torch.sigmoid(gates[3]) * torch.tanh(norm(cell, norms.cell.weight, norms.cell.bias)), cell]
            held[layer] = new
            token = new[0]
        outputs.append(token)
    return outputs


@pytest.mark.parametrize("network", NETWORKS)
def test_norms_inside_the_cells(network: str) -> None:
    """With padding anywhere, as if it were not there."""
    model, (x, hidden) = model_of(network, cell_norm=True), start(network, 1)
    mask = torch.tensor([[False, True, True, False, True]])
    y, after = run_layers(model.writer, x, mask, hidden, model.config, model.norms)
    held = [[h[layer, 0] for h in hidden] for layer in range(2)]
    torch.testing.assert_close(y[mask], torch.stack(literal(network, model, x[mask], held)))
    assert not y[~mask].any()
    for k in range(len(hidden)):
        torch.testing.assert_close(after[k][:, 0], torch.stack([state[k] for state in held]))


def test_a_locked_mask_is_one_for_all_tokens_of_a_row() -> None:
    locked, free = (drop(torch.ones(40, 5, 50), 0.25, locked=on) for on in (True, False))
    assert (locked == locked[:, :1]).all() and not (free == free[:, :1]).all()
    assert not torch.equal(locked[0], locked[1])
    for each in (locked, free):
        assert each.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
        assert float(each.mean()) == pytest.approx(1.0, abs=0.05)
    assert torch.equal(drop(torch.ones(2, 3, 4), 0.0, locked=True), torch.ones(2, 3, 4))


def test_words_are_dropped_whole() -> None:
    mask = word_mask(torch.zeros(1000, 8), 0.2)
    assert mask.shape == (1000, 1) and float((mask == 0).float().mean()) == pytest.approx(0.2, abs=0.05)
    model = model_of("lstm", word_dropout=0.5).train()
    ids = torch.randint(VOCAB, (4, 30))
    torch.manual_seed(1)
    model.read_on(ids)
    seen = {}

    def hook(module: Any, args: Any) -> None:
        seen["x"] = args[0]

    model.writer.register_forward_pre_hook(hook)
    model.read_on(ids)
    gone = (seen["x"] == 0).all(-1)
    for word in range(VOCAB):
        here = gone[ids == word]
        assert here.all() or not here.any()
    assert 0 < int(gone.sum()) < gone.numel()


EVERYTHING: dict[str, Any] = {
    **{"locked_dropout": True, "input_dropout": 0.4, "layer_dropout": 0.3, "dropout": 0.4},
    **{"word_dropout": 0.2, "weight_dropout": 0.5, "ar": 2.0, "tar": 1.0},
}


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_evaluation_knows_nothing_of_it(network: str, normed: bool) -> None:
    plain, other = model_of(network, cell_norm=normed), model_of(network, cell_norm=normed, **EVERYTHING)
    other.load_state_dict(plain.state_dict())
    ids = torch.randint(VOCAB, (3, 7))
    (a, _), (b, _) = plain.read_on(ids), other.read_on(ids)
    assert torch.equal(a.hidden, b.hidden) and a.penalty is None and b.penalty is None
    torch.manual_seed(4)
    (c, _) = other.train().read_on(ids)
    torch.manual_seed(4)
    (d, _) = other.read_on(ids)
    assert torch.equal(c.hidden, d.hidden) and not torch.allclose(a.hidden, c.hidden)


def test_half_precision_stays_around_the_cells() -> None:
    """The loss is computed in half precision, which has its own kernel on GPUs; states stay as exact as weights."""
    model = model_of("lstm", **EVERYTHING, embedding=6).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        output, carry = model.read_on(torch.randint(VOCAB, (2, 4)))
    assert output.hidden.dtype == torch.bfloat16 and {part.dtype for part in carry} == {torch.float32}
    assert output.penalty is not None and output.penalty.dtype == torch.float32


@pytest.mark.parametrize(
    "settings", [{}, {"cell_norm": True}, {"embedding": 6, "lm": LMHeadConfig(tied=True)}], ids=str
)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_carried_state_is_the_text_before(network: str, settings: dict[str, Any]) -> None:
    model, ids = model_of(network, **settings), torch.randint(VOCAB, (3, 9))
    whole, end = model.read_on(ids)
    torch.testing.assert_close(whole.hidden, model(ids).hidden)
    carry = model.first_carry(3)
    assert all(part.shape == (3, 2, 8) for part in carry) and len(carry) == (2 if network == "lstm" else 1)
    parts = []
    for piece in (ids[:, :4], ids[:, 4:5], ids[:, 5:]):
        output, carry = model.read_on(piece, None, carry)
        parts.append(output.hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole.hidden)
    for a, b in zip(carry, end, strict=True):
        torch.testing.assert_close(a, b)


def test_penalties_are_their_formulas() -> None:
    """Without dropout both are of the same outputs."""
    model = model_of("gru", ar=2.0, tar=0.5).train()
    output, _ = model.read_on(torch.randint(VOCAB, (3, 6)))
    h = output.hidden.float()
    right = 2.0 * (h**2).mean() + 0.5 * ((h[:, 1:] - h[:, :-1]) ** 2).mean()
    torch.testing.assert_close(output.penalty, right)
    assert model_of("gru").train().read_on(torch.zeros(1, 2, dtype=torch.long))[0].penalty is None


def test_word_vectors_of_another_width_are_still_the_output_matrix() -> None:
    model = model_of("lstm", embedding=6, lm=LMHeadConfig(tied=True))
    assert model.target.table.weight.shape[1] == 6 and model.lm.output.weight is model.target.table.weight
    ids = torch.randint(VOCAB, (2, 4))
    output = model(ids)
    assert output.hidden.shape == (2, 4, 6) and model.logits(output)["lm"].shape == (2, 4, VOCAB)
    assert model.project is not None and model_of("lstm").project is None


@pytest.mark.parametrize(
    "settings", [{"embedding": 4}, {"weight_dropout": 0.1}, {"cell_norm": True}, {"ar": 1.0}], ids=str
)
def test_only_recurrent_language_models_have_it(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="recurrent language models"):
        small_config("lstm", True, **settings)
    with pytest.raises(ConfigError, match="recurrent language models"):
        small_config("conv", False, **settings)


@pytest.mark.gpu
@pytest.mark.parametrize("network", NETWORKS)
def test_cudnn_gives_the_same_and_copies_no_weights(network: str) -> None:
    """It warns when it has to copy them, and a warning is an error here."""
    model, (x, hidden) = model_of(network).float().train(), start(network, 3)
    given, states, found = x.float(), tuple(h.float() for h in hidden), []
    for device in ("cpu", "cuda"):
        model.to(device).zero_grad()
        y, after = run_layers(
            model.writer, given.to(device), None, tuple(h.to(device) for h in states), model.config, None
        )
        y.square().sum().backward()
        grads = [p.grad.cpu() for p in model.writer.parameters() if p.grad is not None]
        found.append([y.detach().cpu(), *(h.detach().cpu() for h in after), *grads])
    assert len(found[0]) > 8
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)  # TF32
