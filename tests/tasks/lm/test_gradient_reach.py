"""How far gradients reach: a closed form where there is one, finite differences elsewhere; what the report shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.baselines.recurrent import Recurrent
from headway.config.recipe import ShapeConfig
from headway.config.shape import decoder_config
from headway.kernels.lora import add_adapters
from headway.model.model import Model, Transformer
from headway.report.evaluation import Chart, Table, blocks
from headway.tasks.lm.gradient_reach import (
    gradient_details,
    gradient_reach,
    held_out_windows,
    recurrent_matrices,
    spectral_radius,
)
from tests.baselines.conftest import VOCAB, small

STEP = 1e-6


@pytest.mark.parametrize("radius", [0.5, 1.0, 1.5])
def test_a_rotation_shrinks_or_grows_with_its_radius(radius: float) -> None:
    """An Elman network whose state stays zero is linear: each token multiplies the gradient by the matrix."""
    model = small("elman", False, depth=1)
    assert isinstance(model, Recurrent)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.lm.output.weight.normal_()
        model.writer.weight_hh_l0.copy_(radius * torch.linalg.qr(torch.randn(8, 8))[0])
    inputs, targets = torch.randint(VOCAB, (3, 10)), torch.randint(VOCAB, (3,))
    found = gradient_reach(model, inputs, targets)
    wrong = torch.full((3, VOCAB), 1 / VOCAB, dtype=torch.double) - F.one_hot(targets, VOCAB)
    first = (wrong @ model.lm.output.weight[:VOCAB].detach()).norm(dim=1).mean()
    assert found == pytest.approx([float(first) * radius**k for k in range(1, 10)])
    assert [spectral_radius(matrix) for _, matrix in recurrent_matrices(model)] == pytest.approx([radius], rel=1e-4)


def by_differences(loss: Callable[[Tensor], Tensor], at: Tensor) -> float:
    """The norm of a gradient at a point (1, …), by central differences."""
    found = []
    for place in range(at.numel()):
        change = torch.zeros(at.numel(), dtype=at.dtype)
        change[place] = STEP
        change = change.view_as(at)
        found.append(float(loss(at + change) - loss(at - change)) / (2 * STEP))
    return float(np.linalg.norm(found))


@pytest.mark.parametrize("settings", [{}, {"cell_norm": True}, {"embedding": 6}], ids=str)
@pytest.mark.parametrize("network", ["elman", "gru", "lstm"])
def test_recurrent_gradients_are_those_of_differences(network: str, settings: dict[str, Any]) -> None:
    """Of all states together: of both layers, and of an LSTM's cells."""
    model, ids = small(network, False, **settings), torch.randint(VOCAB, (1, 6))
    target = torch.tensor([3])
    found = gradient_reach(model, ids, target)
    assert len(found) == 5
    for k in (1, 3) if not settings else (2,):
        _, carry = model.read_on(ids[:, : 6 - k])
        sizes = [part.numel() for part in carry]

        def loss(flat: Tensor, k: int = k, carry: Any = carry, sizes: Any = sizes) -> Tensor:
            parts = tuple(p.view_as(c) for p, c in zip(flat[0].split(sizes), carry, strict=True))
            output, _ = model.read_on(ids[:, 6 - k :], None, parts)
            return F.cross_entropy(model.lm(output.hidden[:, -1]).double(), target)

        with torch.no_grad():
            right = by_differences(loss, torch.cat([part.flatten() for part in carry])[None])
        assert found[k - 1] == pytest.approx(right, rel=1e-4)


def transformer() -> Model:
    torch.manual_seed(0)
    model = Transformer(decoder_config(ShapeConfig(depth=2, width=8, heads=2), VOCAB, 16)).double()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("make", [transformer, lambda: small("conv", False, kernel=2)], ids=["transformer", "conv"])
def test_other_gradients_are_those_of_the_input_vectors(make: Callable[[], Model]) -> None:
    """A change of a token's vector, through everything above it; a convolution of two layers sees two tokens back."""
    model = make().eval()
    ids, target = torch.randint(VOCAB, (1, 6)), torch.tensor([3])
    found = gradient_reach(model, ids, target)
    seen: dict[str, Tensor] = {}

    def change(module: Any, args: Any, front: Any) -> Any:
        x = front.x.clone()
        x[:, seen["place"]] += seen["by"]
        return replace(front, x=x)

    handle = model.target.register_forward_hook(change)
    for k in range(1, 6):

        def loss(by: Tensor, k: int = k) -> Tensor:
            seen.update(place=torch.tensor(5 - k), by=by[0])
            return F.cross_entropy(model.lm(model(ids).hidden[:, -1]).double(), target)

        with torch.no_grad():
            right = by_differences(loss, torch.zeros(1, 8, dtype=torch.double))
        assert found[k - 1] == pytest.approx(right, rel=1e-3, abs=1e-8)
    handle.remove()
    if not isinstance(model, Transformer):
        assert found[2:] == [0.0] * 3 and min(found[:2]) > 0
    else:
        assert min(found) > 0


def test_the_model_is_left_as_it_was() -> None:
    model = small("lstm", False, dropout=0.5).train()
    inputs, targets = torch.randint(VOCAB, (2, 6)), torch.randint(VOCAB, (2,))
    with torch.no_grad():
        a, b = (gradient_reach(model, inputs, targets) for _ in range(2))
    assert a == b and model.training and all(p.grad is None for p in model.parameters())
    conv = small("conv", False)
    gradient_reach(conv, inputs, targets)
    assert not conv.target._forward_hooks


def test_numbers_are_exact_under_autocast_too() -> None:
    """And adapters in float32 beside a frozen model in half precision have a gradient."""
    model, ids = transformer().float(), torch.randint(VOCAB, (2, 6))
    exact = gradient_reach(model, ids, ids[:, 0])
    with torch.autocast("cpu", torch.bfloat16):
        assert gradient_reach(model, ids, ids[:, 0]) == exact
        add_adapters(model.bfloat16(), 2, ("qkv", "up"))
        assert gradient_reach(model, ids, ids[:, 0]) == pytest.approx(exact, rel=0.3)


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_the_radius_is_the_largest_eigenvalue(size: int) -> None:
    matrix = torch.randn(size, size)
    right = float(torch.linalg.eigvals(matrix.double()).abs().max())
    assert spectral_radius(matrix) == pytest.approx(right, rel=1e-3)
    assert spectral_radius(torch.triu(torch.ones(size, size), 1)) == 0.0


def test_windows_have_the_token_after_them() -> None:
    inputs, targets = held_out_windows(np.arange(300, dtype=np.uint16), 20)
    assert inputs.shape == (16, 20) and (inputs[:, -1] + 1 == targets).all()
    assert inputs[0, 0] == 0 and targets[-1] == 299
    assert len(held_out_windows(np.arange(21), 20)[0]) == 1


def test_the_report_draws_the_curve_and_lists_the_matrices() -> None:
    found = gradient_details(small("lstm", False), np.arange(200) % VOCAB, 16)
    assert found is not None
    chart, table = blocks(found["details"])
    assert isinstance(chart, Chart) and chart.log and "gradients" in chart.title
    ((name, x, y),) = chart.lines
    assert name == "lstm" and x[:2] == [1.0, 2.0] and len(y) == 127 and min(y) > 0
    assert isinstance(table, Table) and len(table.rows) == 8 and table.rows[1][0] == "layer 1, forget"
    short = gradient_details(transformer(), np.arange(200) % VOCAB, 16)
    assert short is not None and len(short["details"]["charts"][0]["lines"][0]["y"]) == 15
    assert len(blocks(short["details"])) == 1
    assert gradient_details(small("lstm", False), np.arange(2), 16) is None
