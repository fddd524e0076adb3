"""What a front end of samples and its blocks are made of: convolutions, a norm without padding, partial rotation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from headway.config.model import RopeConfig, StackConfig
from headway.config.networks.sounds import SamplesConfig
from headway.errors import DataError
from headway.front.sounds import SampleEmbedding
from headway.model.norms import LayerNorm, SoundNorm, make_norm
from headway.model.positions import rotary_angles, rotate
from headway.model.stack import Stack


def test_a_share_of_a_head_is_rotated() -> None:
    """The first pairs turn as a head of that width alone would; the others stay."""
    positions, x = torch.arange(7)[None], torch.randn(1, 1, 7, 12)
    config = RopeConfig(theta=100.0, partial=0.7)
    assert config.rotated(12) == 8
    turned = rotate(x, rotary_angles(config, 12, positions))
    first, second = x.chunk(2, -1)
    alone = rotate(
        torch.cat([first[..., :4], second[..., :4]], -1), rotary_angles(RopeConfig(theta=100.0), 8, positions)
    )
    a, b = turned.chunk(2, -1)
    assert torch.equal(torch.cat([a[..., :4], b[..., :4]], -1), alone)
    assert torch.equal(torch.cat([a[..., 4:], b[..., 4:]], -1), torch.cat([first[..., 4:], second[..., 4:]], -1))
    assert not torch.equal(a[..., :4], first[..., :4])
    none = rotary_angles(RopeConfig(partial=0.0), 12, positions)
    assert torch.equal(rotate(x, none), x)


def test_a_norm_may_have_no_bias() -> None:
    config = StackConfig(d_model=8, n_layers=1, n_heads=2, d_ff=16, norm_bias=False)
    norm, x = make_norm(config), torch.randn(3, 8)
    assert isinstance(norm, LayerNorm) and norm.bias is None
    assert torch.equal(norm(x), F.layer_norm(x, (8,), norm.weight, None, config.norm_eps))
    assert not [name for name, _ in Stack(config).named_parameters() if "norm" in name and name.endswith("bias")]


def test_the_norm_of_a_sound_is_that_without_its_padding() -> None:
    norm, x = SoundNorm(4), torch.randn(2, 4, 9)
    norm.weight.data, norm.bias.data = torch.randn(4), torch.randn(4)
    real = torch.arange(9) < torch.tensor([[9], [5]])
    found = norm(x, real)
    for row, length in enumerate((9, 5)):
        alone = norm(x[row : row + 1, :, :length])
        assert torch.allclose(found[row : row + 1, :, :length], alone, atol=1e-6)
    assert torch.equal(norm(x), F.group_norm(x, 1, norm.weight, norm.bias, norm.eps))


def test_a_position_is_real_if_all_its_samples_are() -> None:
    config = SamplesConfig()
    assert config.span() == (895, 384) and config.span(1) == (127, 64)
    front = SampleEmbedding(config, 8).eval()
    for length, positions in ((895, 1), (1278, 1), (1279, 2), (3000, 6)):
        assert front(torch.randn(1, length)).x.shape[1] == positions
        mask = torch.arange(3000)[None] < length
        layout = front(torch.randn(1, 3000), mask).layout
        assert layout.attention_mask is not None and int(layout.attention_mask.sum()) == positions
    for wrong in (torch.randn(1, 894), torch.randn(1, 1, 3000)):
        with pytest.raises(DataError, match="at least 895"):
            front(wrong)
