"""Attention pictures equal the formulas, computed here from eager weights and by autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headway.config.model import ClassifyHeadConfig, ModelConfig, PatchesConfig, StackConfig, TokensConfig
from headway.errors import DataError
from headway.model import attention as kernels
from headway.model.model import Transformer
from headway.tasks.vision.attention import class_attention, gradient_rollout, rollout


def vit(layers: int = 2, *, labels: int = 3, kv_heads: int | None = None) -> Transformer:
    torch.manual_seed(0)
    stack = StackConfig(d_model=32, n_layers=layers, n_heads=4, d_ff=48, n_kv_heads=kv_heads)
    head = ClassifyHeadConfig(labels=labels, pool="first") if labels else None
    model = Transformer(ModelConfig(encoder=stack, source=PatchesConfig(image=12, patch=4), classify=head))
    for parameter in model.parameters():  # far from uniform attention
        parameter.data.mul_(4)
    return model.eval()


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def eager_maps(model: Transformer, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Tensor], Tensor]:
    """The weights that the eager kernel multiplies values with, in the graph; and the logits."""
    maps: list[Tensor] = []
    plain = kernels.attention_weights

    def kept(*args: Any) -> Tensor:
        maps.append(plain(*args))
        maps[-1].requires_grad_()
        return maps[-1]

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "attention_weights", kept)
        logits = model.classify(model(x, backend="eager").hidden)
    return maps, logits


@pytest.mark.parametrize("layers", [1, 3])
def test_rollout_is_the_product_of_mean_maps_with_the_residual(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = vit(layers), images()
    maps, _ = eager_maps(model, x, monkeypatch)
    joint = torch.eye(10).expand(2, 10, 10)
    for weights in maps:
        joint = (0.5 * weights.mean(1) + 0.5 * torch.eye(10)) @ joint
    assert len(maps) == layers
    torch.testing.assert_close(joint.sum(-1), torch.ones(2, 10))
    found = rollout(model, x)
    assert found.shape == (2, 3, 3) and found.std() > 1e-3
    torch.testing.assert_close(found, joint[:, 0, 1:].reshape(2, 3, 3).detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kv_heads", [None, 2])
@pytest.mark.parametrize("given", [False, True])
def test_gradient_rollout_is_autograd_by_hand(
    given: bool, kv_heads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = vit(kv_heads=kv_heads), images()
    maps, logits = eager_maps(model, x, monkeypatch)
    chosen = torch.tensor([2, 0]) if given else logits.argmax(1)
    slopes = torch.autograd.grad(logits[torch.arange(2), chosen].sum(), maps)
    joint = torch.eye(10).expand(2, 10, 10)
    for weights, slope in zip(maps, slopes, strict=True):
        joint = joint + (slope * weights).clamp(min=0).mean(1) @ joint
    found = gradient_rollout(model, x, chosen if given else None)
    torch.testing.assert_close(found, joint[:, 0, 1:].reshape(2, 3, 3).detach(), rtol=1e-4, atol=1e-6)
    assert not model.training and all(p.grad is None for p in model.parameters())
    with torch.no_grad():  # as inside an evaluation
        torch.testing.assert_close(gradient_rollout(model, x, chosen if given else None), found)


def test_a_model_that_looks_at_one_patch_lights_that_patch() -> None:
    """Keys of patch 5 agree with every query; all others are 0."""
    model = vit(1)
    front, attention = model.source, model.encoder.blocks[0].attention
    with torch.no_grad():
        front.positions.zero_()
        front.positions[1 + 5, 0] = 30.0
        attention.qkv.weight.zero_()
        attention.qkv.bias.zero_()
        attention.qkv.bias[:32] = 4.0  # queries
        attention.qkv.weight[32:64, 0] = 4.0  # keys
        attention.qkv.weight[64:, 0] = 1.0  # values
    found = rollout(model, images())
    assert (found.flatten(1).argmax(1) == 5).all() and (found.flatten(1)[:, 5] > 0.4).all()
    heads = class_attention(model, images())
    assert heads.shape == (2, 4, 3, 3) and (heads.flatten(2)[..., 5] > 0.9).all()
    classifier = model.classify.output
    with torch.no_grad():
        classifier.weight.abs_()
        attention.out.weight.abs_()
    relevance = gradient_rollout(model, images())
    assert (relevance.flatten(1).argmax(1) == 5).all()


def test_class_attention_is_a_row_of_the_eager_map(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = vit(3), images()
    maps, _ = eager_maps(model, x, monkeypatch)
    for layer, index in ((None, 2), (0, 0), (1, 1)):
        expected = maps[index][:, :, 0, 1:].reshape(2, 4, 3, 3)
        torch.testing.assert_close(class_attention(model, x, layer), expected.detach(), rtol=1e-4, atol=1e-6)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="no layer 2"):
        class_attention(vit(2), images(), 2)
    with pytest.raises(DataError, match="label"):
        gradient_rollout(vit(labels=0), images())
    with pytest.raises(DataError, match="images"):
        rollout(Transformer(_text()), torch.zeros(1, 4, dtype=torch.long))


def _text() -> ModelConfig:
    return ModelConfig(encoder=StackConfig(d_model=8, n_layers=1, n_heads=1, d_ff=8), source=TokensConfig(vocab=10))
