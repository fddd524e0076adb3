"""adaLN-Zero and the parts around it, against a plain DiT block (Peebles & Xie 2023)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.checks.equivalence.suite import check_model
from headway.config.model import ModelConfig, PatchesConfig, StackConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import diffusion_config, vision_config
from headway.errors import ConfigError
from headway.hub.folder import load_model, save_model
from headway.hub.restored import resize_images
from headway.model.model import Transformer
from headway.model.positions import grid_sinusoidal

SHAPE = ShapeConfig(depth=2, width=32, heads=4)


def dit(classes: int = 5, *, trained: bool = True) -> Transformer:
    """A small DiT; `trained`: no weight is zero."""
    torch.manual_seed(0)
    model = Transformer(diffusion_config(SHAPE, 8, 3, classes)).eval()
    if trained:
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.1)
    return model


def plain_block(block: nn.Module, x: Tensor, c: Tensor, heads: int) -> Tensor:
    """The block as the paper writes it: six vectors from the condition, norms without weights."""

    def modulate(part: nn.Module) -> tuple[Tensor, ...]:
        return F.linear(c, part.modulate.weight, part.modulate.bias)[:, None].chunk(3, -1)  # type: ignore[attr-defined]

    (shift1, scale1, gate1), (shift2, scale2, gate2) = modulate(block.residual1), modulate(block.residual2)
    y = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale1) + shift1
    qkv = F.linear(y, block.attention.qkv.weight, block.attention.qkv.bias)
    q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))
    weights = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).softmax(-1)
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    x = x + gate1 * F.linear(mixed, block.attention.out.weight, block.attention.out.bias)
    y = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale2) + shift2
    y = F.gelu(F.linear(y, block.ffn.up.weight, block.ffn.up.bias), approximate="tanh")
    return x + gate2 * F.linear(y, block.ffn.down.weight, block.ffn.down.bias)


def plain_dit(model: Transformer, images: Tensor, times: Tensor, classes: Tensor) -> Tensor:
    """The model without headway's modules: patches by a convolution, unpatchify by a fold."""
    config, front = model.config, model.source
    assert isinstance(config.source, PatchesConfig) and config.encoder is not None and model.condition is not None
    side = config.source.patch
    kernel = front.project.weight.unflatten(1, (-1, side, side))
    x = F.conv2d(images, kernel, front.project.bias, stride=side).flatten(2).mT
    x = x + grid_sinusoidal(8 // side, x.shape[2], x.device)
    half = torch.exp(-torch.log(torch.tensor(10000.0)) * torch.arange(128) / 128)
    waves = torch.cat([(1000 * times[:, None] * half).sin(), (1000 * times[:, None] * half).cos()], 1)
    part = model.condition
    c = F.silu(part.time2(F.silu(part.time1(waves))) + part.classes.weight[classes])
    for block in model.encoder.blocks:
        x = plain_block(block, x, c, config.encoder.n_heads)
    shift, scale = F.linear(c, model.encoder.modulate.weight, model.encoder.modulate.bias)[:, None].chunk(2, -1)  # type: ignore[union-attr]
    x = F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
    return F.fold(model.denoise.output(x).mT, (8, 8), side, stride=side)


@torch.no_grad()
def test_the_block_with_modulation_is_a_plain_dit() -> None:
    model = dit()
    images, times, classes = torch.randn(4, 3, 8, 8), torch.rand(4), torch.tensor([0, 4, 5, 2])
    ours = model.denoise(model(images, condition=(times, classes)).hidden)
    torch.testing.assert_close(ours, plain_dit(model, images, times, classes), atol=1e-4, rtol=1e-4)
    others = model.denoise(model(images, condition=(times, classes.flip(0))).hidden)
    assert not torch.allclose(ours, others, atol=1e-2)


@torch.no_grad()
def test_each_row_of_a_batch_has_its_own_condition_and_the_default_is_time_0_without_a_class() -> None:
    model = dit()
    images, times, classes = torch.randn(3, 3, 8, 8), torch.tensor([0.0, 0.5, 1.0]), torch.tensor([5, 1, 2])
    together = model(images, condition=(times, classes)).hidden
    for i in range(3):
        alone = model(images[i : i + 1], condition=(times[i : i + 1], classes[i : i + 1])).hidden
        torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(images).hidden[0], together[0], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_new_model_passes_its_input_through_and_predicts_zeros() -> None:
    model, images = dit(trained=False), torch.randn(2, 3, 8, 8)
    condition = (torch.rand(2), torch.tensor([0, 1]))
    hidden, x = model(images, condition=condition).hidden, model.source(images).x
    torch.testing.assert_close(hidden, F.layer_norm(x, x.shape[-1:], eps=1e-6))
    assert model.denoise(hidden).shape == (2, 3, 8, 8) and not model.denoise(hidden).any()


def test_positions_tell_column_and_row() -> None:
    found = grid_sinusoidal(3, 8, torch.device("cpu")).view(3, 3, 8)
    assert torch.equal(found[0, 2, :4], found[2, 2, :4]) and torch.equal(found[1, 0, 4:], found[1, 2, 4:])
    torch.testing.assert_close(found[1, 2, :4], torch.tensor([2.0, 0.02]).sin().repeat(2).where(
        torch.tensor([True, True, False, False]), torch.tensor([2.0, 0.02]).cos().repeat(2)
    ))  # fmt: skip


@torch.no_grad()
def test_a_saved_model_is_the_loaded_one_and_passes_its_checks(tmp_path: Path) -> None:
    model = dit()
    save_model(model, tmp_path / "dit")
    loaded = load_model(tmp_path / "dit")
    assert loaded.config == model.config and loaded.config.family == "headway"
    images, condition = torch.randn(2, 3, 8, 8), (torch.rand(2), torch.tensor([0, 1]))
    assert torch.equal(loaded(images, condition=condition).hidden, model(images, condition=condition).hidden)
    results = {result.name: result for result in check_model(model, compiled=False)}
    assert all(result.ok for result in results.values()), results
    assert results["batch = single"].difference is not None and results["maps = eager weights"].difference is not None


@torch.no_grad()
def test_images_of_another_size_have_the_positions_of_that_size() -> None:
    model = dit()
    assert resize_images(model, 12).config.source.image == 12  # type: ignore[union-attr]
    assert model.denoise(model(torch.randn(1, 3, 12, 12)).hidden).shape == (1, 3, 12, 12)


def test_a_model_without_modulation_has_no_weight_of_it() -> None:
    names = Transformer(vision_config(SHAPE, 8, 3)).state_dict()
    assert not [name for name in names if "modulate" in name or "condition" in name]
    assert "encoder.norm.weight" in names and "encoder.norm.weight" not in dit().state_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"condition": None},
        {"encoder": StackConfig(d_model=32, n_layers=1, n_heads=4, d_ff=8)},
        {"source": PatchesConfig(image=8, patch=1)},
        {"source": PatchesConfig(image=8, patch=2, class_token=False)},
    ],
)
def test_parts_that_do_not_go_together_are_refused(change: dict[str, object]) -> None:
    config: ModelConfig = dit().config
    with pytest.raises(ConfigError) as caught:
        replace(config, **change)  # type: ignore[arg-type]
    assert caught.value.code == "C004"
    with pytest.raises(ConfigError):
        StackConfig(d_model=32, n_layers=1, n_heads=4, d_ff=8, modulation=True, norm_at="post")
