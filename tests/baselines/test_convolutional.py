"""The convolutional model against the paper's formulas, one position at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway.baselines.build import make_model
from headway.baselines.convolutional import Convolutional, Layer
from headway.model.model import Transformer
from tests.baselines.conftest import SOURCE_VOCAB, VOCAB, small, small_config

HALF = math.sqrt(0.5)


def gated(layer: Layer, window: list[Tensor]) -> Tensor:
    """A ⊗ σ(B) of a linear map of the window."""
    weight, bias = layer.conv.weight.detach(), layer.conv.bias.detach()  # type: ignore[union-attr]
    both = bias + sum(weight[:, :, k] @ x for k, x in enumerate(window))
    a, b = both.chunk(2)
    return a * torch.sigmoid(b)


def embedded(model: Transformer, name: str, ids: Tensor) -> list[Tensor]:
    front = getattr(model, name)
    return [front.table.weight[i] + front.positions.table.weight[n] for n, i in enumerate(ids.tolist())]


def slow(model: Convolutional, source: Tensor, target: Tensor) -> Tensor:
    zero = torch.zeros(8, dtype=torch.double)
    e = x = embedded(model, "source", source)  # type: ignore[arg-type]
    for layer in model.reader:
        wide = [zero, *x, zero]
        x = [(gated(layer, wide[n : n + 3]) + x[n]) * HALF for n in range(len(x))]  # type: ignore[arg-type]
    keys, values = torch.stack(x), torch.stack([(a + b) * HALF for a, b in zip(x, e, strict=True)])
    g = h = embedded(model, "target", target)  # type: ignore[arg-type]
    for layer in model.writer:
        wide, new = [zero, zero, *h], []
        for n in range(len(h)):
            y = gated(layer, wide[n : n + 3])  # type: ignore[arg-type]
            weights = (keys @ ((layer.query(y) + g[n]) * HALF)).softmax(-1)  # type: ignore[operator, union-attr]
            context = layer.out(math.sqrt(len(e)) * weights @ values)  # type: ignore[operator, union-attr]
            new.append(((y + context) * HALF + h[n]) * HALF)
        h = new
    return torch.stack(h)


def test_the_formulas() -> None:
    model = small("conv")
    assert isinstance(model, Convolutional)
    source, target = torch.randint(SOURCE_VOCAB, (5,)), torch.randint(VOCAB, (6,))
    torch.testing.assert_close(model(source[None], target[None]).hidden[0], slow(model, source, target))


def test_sees_as_far_as_its_layers_reach() -> None:
    """Two layers with a kernel of 3 see four tokens back, and not a fifth."""
    model = small("conv", False)
    ids = torch.randint(VOCAB - 1, (1, 9))
    before = model(ids).hidden[0, 8]
    for back, reaches in ((4, True), (5, False)):
        other = ids.clone()
        other[0, 8 - back] = VOCAB - 1
        assert bool((model(other).hidden[0, 8] - before).abs().max() > 1e-9) is reaches


def test_variance_is_kept_at_the_start() -> None:
    """The paper's starting weights: eight layers neither grow nor vanish."""
    torch.manual_seed(0)
    model = make_model(small_config("conv", False, depth=8))
    layer = model.writer[0]
    x = torch.randn(64, 40, 8)
    y = layer(x)
    assert bool(0.5 < y.var() / x.var() < 2.0)
