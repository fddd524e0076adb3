"""Fusion of images and sounds: each kind against the same blocks called by hand, and what each of them reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.checks.equivalence.suite import check_model
from headway.config.model import ClassifyHeadConfig, PatchesConfig
from headway.config.networks.fusion import FusionConfig, FusionMode
from headway.config.recipe import ShapeConfig
from headway.config.shape import fusion_config, sound_config
from headway.errors import ConfigError, DataError
from headway.joint.fusion import Fusion
from headway.model.masks import Layout

IMAGE = PatchesConfig(image=16, patch=8, channels=3)
SOUND = sound_config(ShapeConfig(depth=1, patch=8), 24, 40, 10).source
MODES: tuple[FusionMode, ...] = ("early", "late", "image", "sound")


def model(mode: FusionMode) -> Fusion:
    assert isinstance(SOUND, PatchesConfig)
    config = fusion_config(ShapeConfig(depth=2, width=32, heads=2), mode, IMAGE, SOUND)
    made = Fusion(replace(config, classify=ClassifyHeadConfig(labels=3), labels=("a", "b", "c")))
    for name, parameter in made.named_parameters():  # branches that start near zero would hide a mistake
        if "weight" in name and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def inputs(count: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, 16, 16), torch.randn(count, 1, 24, 40)


def layout(x: Tensor) -> Layout:
    return Layout.of(x.shape[1], None, x.device)


@torch.no_grad()
def test_early_fusion_is_one_stack_on_the_tokens_of_both() -> None:
    made, (images, sounds) = model("early"), inputs()
    tokens = [made.image_front(images).x + made.modality[0], made.sound_front(sounds).x + made.modality[1]]
    x = torch.cat(tokens, 1)
    assert x.shape[1] == made.config.tokens == (1 + 4) + (1 + 12)
    assert torch.allclose(made(images, sounds).hidden, made.encoder(x, layout(x)), atol=1e-5)
    assert made.modality.std() > 0.005


@torch.no_grad()
def test_late_fusion_attends_from_the_image_to_the_sound() -> None:
    made, (images, sounds) = model("late"), inputs()
    seen, heard = made.image(images).hidden, made.sound(sounds).hidden
    x = seen
    for block in made.joint.blocks:  # by the definition: softmax over the keys of the sound
        y = block.residual1.norm(x)
        x = x + block.attention(y, _open(y, y))
        y = block.residual_cross.norm(x)
        x = x + _cross(block.cross, y, heard)
        x = x + block.ffn(block.residual2.norm(x))
    x = x if made.joint.norm is None else made.joint.norm(x)
    assert torch.allclose(made(images, sounds).hidden, x, atol=1e-4)


def _open(x: Tensor, keys: Tensor) -> Any:
    from headway.model.masks import self_attention_bias

    config = fusion_config(ShapeConfig(depth=2, width=32, heads=2), "early", IMAGE, SOUND).encoder  # type: ignore[arg-type]
    return self_attention_bias(config, None, layout(x), layout(keys), "eager")


def _cross(attention: Any, x: Tensor, memory: Tensor) -> Tensor:
    q = attention.q(x).unflatten(-1, (2, 16)).transpose(1, 2)
    k, v = attention.project_kv(memory)
    weights = (q @ k.mT / 16**0.5).softmax(-1)
    found: Tensor = attention.out((weights @ v).transpose(1, 2).flatten(2))
    return found


@pytest.mark.parametrize("mode", MODES)
@torch.no_grad()
def test_what_a_model_reads(mode: FusionMode) -> None:
    made, (images, sounds) = model(mode), inputs()
    plain = made.classify(made(images, sounds).hidden)
    other_image = made.classify(made(torch.randn_like(images), sounds).hidden)
    other_sound = made.classify(made(images, torch.randn_like(sounds)).hidden)
    assert torch.equal(plain, other_image) == (mode == "sound")
    assert torch.equal(plain, other_sound) == (mode == "image")
    with pytest.raises(DataError, match="both"):
        made(images)
    with pytest.raises(DataError, match="generates nothing"):
        made.start(capacity=1)


@pytest.mark.parametrize("mode", MODES)
def test_the_checks_pass_and_see_a_model_whose_rows_mix(mode: FusionMode) -> None:
    made = model(mode)
    assert all(result.ok for result in check_model(made, compiled=False))
    made.classify.register_forward_hook(lambda module, given, found: found + found.mean(0))
    failed = {result.name for result in check_model(made, compiled=False) if not result.ok}
    assert "batch = single" in failed


def test_configs_that_make_no_sense() -> None:
    assert isinstance(SOUND, PatchesConfig)
    good = fusion_config(ShapeConfig(depth=2, width=32, heads=2), "late", IMAGE, SOUND)
    changes: list[dict[str, Any]] = [
        {"joint": None},
        {"fusion": "early"},
        {"image": SOUND},
        {"sound": IMAGE},
        {"joint": replace(good.encoder, cross=True, d_model=64)},
        {"joint": good.encoder},
    ]
    for change in changes:
        with pytest.raises(ConfigError):
            replace(good, **change)
    assert isinstance(good, FusionConfig)
