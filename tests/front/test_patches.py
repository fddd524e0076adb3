"""Rectangles as patches: equal to a strided convolution, with positions of their own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headway.config.model import PatchesConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import sound_config
from headway.errors import ConfigError, DataError
from headway.front.patches import PatchEmbedding
from headway.model.model import Transformer


@pytest.mark.parametrize(("patch", "columns"), [(4, 0), (4, 3), (8, 5)])
def test_patches_are_a_strided_convolution(patch: int, columns: int) -> None:
    config = PatchesConfig(image=16, columns=31, patch=patch, patch_columns=columns, channels=2)
    high, wide = config.patch_shape
    assert config.count == (16 // high) * (31 // wide)
    front = PatchEmbedding(config, 12).eval()
    torch.nn.init.normal_(front.positions)
    images = torch.randn(3, 2, 16, 31)
    kernel = front.project.weight.view(12, 2, high, wide)
    wanted = F.conv2d(images, kernel, front.project.bias, stride=(high, wide)).flatten(2).mT
    found = front(images).x
    assert torch.allclose(found[:, 1:], wanted + front.positions[1:], atol=1e-5)
    with pytest.raises(DataError):
        front(images.mT)


def test_fixed_positions_are_for_squares() -> None:
    with pytest.raises(ConfigError, match="sincos"):
        PatchesConfig(image=16, columns=32, patch=4, positions="sincos")
    with pytest.raises(ConfigError, match="patch_columns"):
        PatchesConfig(image=16, columns=32, patch=4, patch_columns=33)


def test_an_encoder_of_spectrograms() -> None:
    config = sound_config(ShapeConfig(depth=2, width=32, heads=2), 40, 98, 10)
    assert config.source is not None and config.max_length == 2 * 9 + 1
    assert Transformer(config)(torch.randn(2, 1, 40, 98)).hidden.shape == (2, 19, 32)
    for wrong in ({"patch": 41}, {"positions": "rope"}):
        with pytest.raises(ConfigError):
            sound_config(ShapeConfig(depth=1, **wrong), 40, 98, 10)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="longer than a clip"):
        sound_config(ShapeConfig(depth=1), 40, 98, 99)
