"""Images of another size: the same numbers as `transformers`, which resamples in every pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.config.presets import preset
from headway.errors import ConfigError, DataError
from headway.hub.folder import load_model, save_model
from headway.hub.restored import resize_images
from headway.model.model import Transformer


@pytest.mark.parametrize("image", [24, 40, 56, 43])
def test_it_agrees_with_transformers(image: int, tmp_path: Path) -> None:
    import transformers

    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )
    torch.manual_seed(0)
    oracle = transformers.Dinov2Model(config).eval()
    oracle.embeddings.position_embeddings.data.normal_()
    oracle.save_pretrained(tmp_path / "model")
    model = resize_images(load_model(tmp_path / "model"), image)
    images = torch.randn(2, 3, image, image)
    with torch.no_grad():
        worst = float((model(images).hidden - oracle(images).last_hidden_state).abs().max())
    assert worst <= 1e-5


@pytest.mark.parametrize("image", [24, 40])
def test_the_distillation_token_of_deit_has_no_place_in_the_grid(image: int, tmp_path: Path) -> None:
    import transformers

    config = transformers.DeiTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8
    )
    torch.manual_seed(0)
    oracle = transformers.DeiTModel(config).eval()
    oracle.embeddings.position_embeddings.data.normal_()
    oracle.save_pretrained(tmp_path / "model")
    model = resize_images(load_model(tmp_path / "model"), image)
    images = torch.randn(2, 3, image, image)
    with torch.no_grad():
        theirs = oracle(images, interpolate_pos_encoding=True).last_hidden_state
        assert float((model(images).hidden - theirs).abs().max()) <= 1e-5


def test_the_resized_model_is_saved_as_such(tmp_path: Path) -> None:
    model = resize_images(Transformer(preset("vit-tiny")).eval(), 48)
    again = load_model(save_model(model, tmp_path / "model"))
    assert again.config == model.config
    images = torch.randn(1, 3, 48, 48)
    assert torch.equal(again(images).hidden, model(images).hidden)


def test_what_cannot_be_resized() -> None:
    with pytest.raises(DataError, match="reads images"):
        resize_images(Transformer(preset("gpt2-tiny")), 64)
    with pytest.raises(ConfigError, match="patch = 4"):
        resize_images(Transformer(preset("vit-tiny")), 2)
