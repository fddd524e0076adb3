"""SeriesModel: parity with `transformers`, cached and uncached, quantiles, what a window may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.baselines.build import make_model
from headway.config.networks.kinds import kind_of_config
from headway.config.networks.series import SeriesConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import series_config
from headway.config.toml import build, to_dict
from headway.errors import ConfigError
from headway.joint.series import SeriesModel
from headway.train.optim.optimizer import depths

SHAPE = ShapeConfig(depth=2, width=16, heads=2)


def config(*, causal: bool = False, shape: ShapeConfig = SHAPE, channels: int = 0, **more: Any) -> SeriesConfig:
    sizes = {"look_back": 32, "horizon": 16, "patch": 8, "stride": 4}
    given = {name: more.pop(name, size) for name, size in sizes.items()}
    return replace(series_config(shape, causal=causal, channels=channels, **given), **more)


def model(**more: Any) -> SeriesModel:
    made = make_model(config(**more)).eval()
    assert isinstance(made, SeriesModel)
    return made


def windows(rows: int = 3, steps: int = 48, columns: int = 2) -> Tensor:
    return torch.randn(rows, steps, columns).cumsum(1)


def copied(ours: SeriesModel, theirs: Any) -> None:
    """The weights of PatchTST in `transformers`, put into our model."""
    with torch.no_grad():
        embedding = theirs.model.encoder.embedder.input_embedding
        ours.patches.weight.copy_(embedding.weight)
        ours.patches.bias.copy_(embedding.bias)
        assert ours.positions is not None
        ours.positions.copy_(theirs.model.encoder.positional_encoder.position_enc)
        for block, layer in zip(ours.encoder.blocks, theirs.model.encoder.layers, strict=True):
            attention = layer.self_attn
            for name in ("weight", "bias"):
                parts = [getattr(getattr(attention, f"{each}_proj"), name) for each in "qkv"]
                getattr(block.attention.qkv, name).copy_(torch.cat(parts))  # type: ignore[union-attr]
                for mine, other in (
                    (block.attention.out, attention.out_proj),  # type: ignore[union-attr]
                    (block.ffn.up, layer.ff[0]),  # type: ignore[union-attr]
                    (block.ffn.down, layer.ff[3]),  # type: ignore[union-attr]
                    (block.residual1.norm, layer.norm_sublayer1),  # type: ignore[union-attr]
                    (block.residual2.norm, layer.norm_sublayer3),  # type: ignore[union-attr]
                ):
                    getattr(mine, name).copy_(getattr(other, name))
        ours.output.weight.copy_(theirs.head.projection.weight.view(16, 2, -1).flatten(1) * 1.0)
        ours.output.bias.copy_(theirs.head.projection.bias)


@pytest.mark.parametrize("norm_at", ["pre", "post"])
def test_the_encoder_is_patchtst(norm_at: str) -> None:
    """`transformers` does not repeat the last value at the end of a window: it is given the longer window."""
    transformers = pytest.importorskip("transformers")
    shape = ShapeConfig(depth=2, width=16, heads=2, ff=32, activation="gelu", norm_at=norm_at)  # type: ignore[arg-type]
    ours = model(shape=shape, instance_norm=False)
    ours = SeriesModel(replace(ours.config, stack=replace(ours.config.stack, final_norm=False))).eval()
    theirs = transformers.PatchTSTForPrediction(
        transformers.PatchTSTConfig(
            num_input_channels=2, context_length=36, prediction_length=16, patch_length=8, patch_stride=4,
            num_hidden_layers=2, d_model=16, num_attention_heads=2, ffn_dim=32, norm_type="layernorm",
            pre_norm=norm_at == "pre", scaling=None, loss="mse", positional_encoding_type="random",
            attention_dropout=0.0, positional_dropout=0.0, path_dropout=0.0, ff_dropout=0.0, head_dropout=0.0,
            do_mask_input=False, use_cls_token=False, share_projection=True, pooling_type=None,
        )
    ).eval()  # fmt: skip
    for parameter in theirs.parameters():  # norms and biases that are not ones and zeros
        torch.nn.init.normal_(parameter, std=0.3)
    copied(ours, theirs)
    x = windows(steps=32)
    longer = torch.cat([x, x[:, -1:].expand(-1, 4, -1)], 1)
    with torch.no_grad():
        right = theirs(past_values=longer).prediction_outputs
        assert torch.allclose(ours.forecast(x)[..., 0], right, atol=1e-5)
        control = ours.forecast(x.flip(1))[..., 0]
    assert not torch.allclose(control, right, atol=1e-2)


@pytest.mark.parametrize("channels", [0, 2])
@pytest.mark.parametrize("quantiles", [(), (0.1, 0.5, 0.9)])
def test_cached_is_uncached(channels: int, quantiles: tuple[float, ...]) -> None:
    causal = model(causal=True, channels=channels, quantiles=quantiles, patch=4)
    x = windows(steps=32)
    with torch.no_grad():
        cached, again = (causal.forecast(x, 40, cached=cached) for cached in (True, False))
    assert cached.shape == (3, 40, 2, max(1, len(quantiles))) and torch.allclose(cached, again, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_training_predicts_what_use_predicts(causal: bool) -> None:
    """The first patch after the look-back: later ones follow the true values in training, and predictions in use."""
    made, x = model(causal=causal), windows()
    with torch.no_grad():
        fitted, used = made.fitted(x), made.forecast(x[:, :32])
    assert fitted.shape == used.shape == (3, 16, 2, 1)
    assert torch.allclose(fitted[:, :8], used[:, :8], atol=1e-5)
    assert torch.allclose(fitted[:, 8:], used[:, 8:], atol=1e-5) == (not causal)


@pytest.mark.parametrize("instance_norm", [False, True])
def test_no_prediction_of_training_sees_its_target_or_what_follows(instance_norm: bool) -> None:
    """With instance norm, mean and variance are those of the look-back alone."""
    made, x = model(causal=True, instance_norm=instance_norm), windows()
    with torch.no_grad():
        before = made.fitted(x)
        for patch in range(before.shape[1] // 8):
            other, first = x.clone(), x.shape[1] - before.shape[1] + 8 * patch
            other[:, first:] += 5.0
            after = made.fitted(other)
            assert torch.equal(after[:, : 8 * (patch + 1)], before[:, : 8 * (patch + 1)])
            assert patch == before.shape[1] // 8 - 1 or not torch.allclose(after, before)


def test_a_horizon_beyond_the_trained_one_goes_on_from_the_median() -> None:
    made, x = model(quantiles=(0.2, 0.5, 0.8)), windows(steps=32)
    with torch.no_grad():
        long, first = made.forecast(x, 20), made.forecast(x)
        second = made.forecast(torch.cat([x, first[..., 1]], 1))
    assert torch.equal(long[:, :16], first) and torch.allclose(long[:, 16:], second[:, :4])
    assert (long.diff(dim=-1) >= 0).all(), "quantiles rise"


def test_instance_norm_follows_level_and_scale_of_a_window() -> None:
    x = windows(steps=32)
    with torch.no_grad():
        for affine in (0, 2):
            made = model(affine=affine)
            moved = made.forecast(3 * x + 7)
            assert torch.allclose(moved, 3 * made.forecast(x) + 7, atol=1e-3)
        assert not torch.allclose(model(instance_norm=False).forecast(3 * x + 7), moved, atol=1e-1)


def test_columns_are_independent_or_mixed() -> None:
    x = windows(steps=32)
    other = x.clone()
    other[..., 1] += torch.linspace(0, 3, 32)
    with torch.no_grad():
        for channels, same in ((0, True), (2, False)):
            made = model(channels=channels)
            assert torch.equal(made.forecast(x)[:, :, 0], made.forecast(other)[:, :, 0]) is same


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_a_recurrent_network_takes_the_place_of_the_blocks(cell: str) -> None:
    shape = replace(SHAPE, kind=cell)  # type: ignore[arg-type]
    made = model(shape=shape, channels=2, patch=1, stride=1, horizon=1, instance_norm=False, change=0.5)
    x = windows(steps=33)
    with torch.no_grad():
        fitted = made.fitted(x)
        assert torch.allclose(fitted[:, -1:], made.forecast(x[:, :32]), atol=1e-5)
        made.output.weight.zero_()
        made.output.bias.fill_(2.0)
        assert torch.allclose(made.forecast(x[:, :32])[:, 0, :, 0], x[:, 31] + 1.0), "a change of 2 · 0.5"


def test_a_config_comes_back_from_its_file() -> None:
    for made in (config(), config(causal=True, quantiles=(0.1, 0.5), affine=2)):
        values = to_dict(made)
        assert kind_of_config(values) is SeriesConfig and build(SeriesConfig, values) == made


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"patch": 40}, "patch = 40 conflicts with look_back = 32"),
        ({"quantiles": (0.1, 0.9)}, "0.5 should be among them"),
        ({"quantiles": (0.5, 0.1)}, "should rise"),
        ({"quantiles": (0.5, 1.5)}, "between 0 and 1"),
        ({"stride": 9}, "stride = 9"),
        ({"causal": True, "horizon": 9}, "horizon = 9.*reads and writes patches"),
        ({"change": 1.0}, "it is for models that go on step by step"),
    ],
)
def test_configs_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**wrong)


def test_shapes_that_are_for_text() -> None:
    for shape in (ShapeConfig(kind="conv"), ShapeConfig(positions="sinusoidal")):
        with pytest.raises(ConfigError, match="is for text"):
            config(shape=shape)


def test_keys_of_the_block_work_here_too() -> None:
    for shape in (
        replace(SHAPE, positions="rope", norm="rmsnorm", gated=True, kv_heads=1),
        replace(SHAPE, positions="alibi", window=2),
        replace(SHAPE, positions="relative", norm_at="post"),
    ):
        made, x = model(shape=shape, causal=True), windows(steps=32)
        with torch.no_grad():
            assert torch.allclose(made.forecast(x, 16), made.forecast(x, 16, cached=False), atol=1e-5)


def test_what_comes_before_the_blocks_is_deepest() -> None:
    """Layer-wise decay of the learning rate: the patches change least, the output most."""
    made = model(causal=True)
    found = depths(made, [name for name, _ in made.named_parameters()])
    assert found["patches.weight"] == found["positions"] == 3 and found["output.weight"] == 0
    assert found["decoder.blocks.0.attention.qkv.weight"] == 2
