"""SigLIP against `transformers`, in float32, to 1e-5: features, logits, loss, saved and loaded back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.checks.equivalence.suite import check_model
from headway.config.networks.towers import TwoTowersConfig
from headway.errors import ConfigError
from headway.hub.convert import load_tensors
from headway.hub.folder import describe, load_model, open_folder, save_model
from headway.hub.tables.siglip import read_siglip
from headway.joint.towers import TwoTowers
from headway.tasks.contrastive.training import sigmoid_loss

TOLERANCE = 1e-5
PAD, LENGTH = 1, 12
TOWER: dict[str, Any] = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
TEXT: dict[str, Any] = dict(TOWER, vocab_size=50, max_position_embeddings=LENGTH, pad_token_id=PAD, projection_size=40)
VISION: dict[str, Any] = dict(TOWER, hidden_size=40, image_size=16, patch_size=4)


@pytest.fixture(scope="module")
def oracle() -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    made = transformers.SiglipModel(transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)).eval()
    for parameter in made.parameters():  # fresh weights are so small that a wrong field would hardly show
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return made


@pytest.fixture
def folder(oracle: Any, tmp_path: Path) -> Path:
    oracle.save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def towers_of(folder: Path) -> TwoTowers:
    model = load_model(folder)
    assert isinstance(model, TwoTowers)
    return model


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Images, token ids padded to the length of the longest, and their mask."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(4, 48, (3, 9), generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 5, 7])[:, None]
    return torch.randn(3, 3, 16, 16, generator=generator), ids.masked_fill(~mask, 0), mask


def theirs(oracle: Any) -> dict[str, Tensor]:
    """SigLIP is trained on texts that are padded to full length, and attends to the padding."""
    images, ids, mask = inputs()
    whole = torch.nn.functional.pad(ids.masked_fill(~mask, PAD), (0, LENGTH - ids.shape[1]), value=PAD)
    out = oracle(input_ids=whole, pixel_values=images, return_loss=True)
    image, text = oracle.get_image_features(images).pooler_output, oracle.get_text_features(whole).pooler_output
    return {"image": image, "text": text, "logits": out.logits_per_image, "loss": out.loss}


def ours(model: TwoTowers, left: bool = False) -> dict[str, Tensor]:
    images, ids, mask = inputs()
    if left:
        places = (torch.arange(9) + mask.sum(1, keepdim=True)) % 9
        ids, mask = ids.gather(1, places), mask.gather(1, places)
    image, text = model.image_features(images), model.text_features(ids, mask)
    logits = model.similarity(image, text)
    loss = sigmoid_loss(logits, torch.arange(3)) / 3
    return {"image": image, "text": text, "logits": logits, "loss": loss}


@torch.no_grad()
def gap(model: TwoTowers, oracle: Any, *, left: bool = False) -> dict[str, float]:
    right, found = theirs(oracle), ours(model, left)
    return {name: float((found[name] - right[name]).abs().max()) for name in right}


@pytest.mark.parametrize("left", [False, True])
def test_features_logits_and_loss_agree(folder: Path, oracle: Any, left: bool) -> None:
    assert max(gap(towers_of(folder), oracle, left=left).values()) <= TOLERANCE


def test_transformers_loads_what_headway_saved(folder: Path, oracle: Any, tmp_path: Path) -> None:
    model = towers_of(folder)
    save_model(model, tmp_path / "ours")
    back, info = type(oracle).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert max(gap(model, back.eval()).values()) <= TOLERANCE
    again = towers_of(tmp_path / "ours")
    assert again.config == model.config
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("side", "part", "fields"),
    [
        ("image", "encoder", {"activation": "relu"}),
        ("image", "encoder", {"norm_eps": 1e-2}),
        ("text", "encoder", {"causal": True}),
        ("text", "special", {}),
    ],
)
def test_one_wrong_field_shows(folder: Path, oracle: Any, side: str, part: str, fields: dict[str, Any]) -> None:
    opened = open_folder(folder)
    config = opened.config
    assert isinstance(config, TwoTowersConfig)
    if part == "special":
        wrong = replace(config, special=replace(config.special, pad=2))
    else:
        tower = getattr(config, side)
        wrong = replace(config, **{side: replace(tower, **{part: replace(getattr(tower, part), **fields)})})
    with torch.device("meta"):
        model = TwoTowers(wrong)
    load_tensors(model, opened.family, opened.architecture, opened.weights)
    found = gap(model.eval(), oracle)
    assert found[side] > 10 * TOLERANCE and found["logits"] > 10 * TOLERANCE


def test_gradients_agree(folder: Path, oracle: Any) -> None:
    model = towers_of(folder)
    ours(model)["loss"].backward()
    oracle.zero_grad()
    theirs(oracle)["loss"].backward()
    pairs = {
        model.logit_scale: oracle.logit_scale,
        model.logit_bias: oracle.logit_bias,
        model.image_probe.query: oracle.vision_model.head.probe,
        model.image_probe.attention.qkv.weight: oracle.vision_model.head.attention.in_proj_weight,
        model.text_projection.bias: oracle.text_model.head.bias,
    }
    for mine, other in pairs.items():
        assert mine is not None and mine.grad is not None
        size = max(1.0, float(other.grad.abs().max()))
        assert float((mine.grad - other.grad.view_as(mine.grad)).abs().max()) <= TOLERANCE * size


def test_every_check_passes(folder: Path) -> None:
    results = {result.name: result for result in check_model(load_model(folder), compiled=False)}
    assert [result for result in results.values() if not result.ok] == []
    assert results["saved = loaded"].note == ""


def test_a_variant_that_siglip_cannot_express_has_our_own_layout(folder: Path, tmp_path: Path) -> None:
    model = towers_of(folder)
    other = TwoTowers(replace(model.config, logit_bias=None)).eval()
    assert describe(other)[0] is None
    save_model(other, tmp_path / "own")
    assert towers_of(tmp_path / "own").config == other.config


@pytest.mark.parametrize("part", ["vision_config", "text_config"])
def test_an_absent_field_means_what_it_means_to_transformers(part: str) -> None:
    import transformers

    complete = json.loads(transformers.SiglipConfig().to_json_string(use_diff=False))
    expected = read_siglip(complete)
    for name in complete[part]:
        less = {key: value for key, value in complete[part].items() if key != name}
        assert read_siglip(complete | {part: less}) == expected, name
    assert read_siglip({"model_type": "siglip"}) == expected


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"vision_config": {"vision_use_head": False}}, "C022"),
        ({"vision_config": {"model_type": "clip_vision_model"}}, "C022"),
        ({"text_config": {"projection_size": 512}}, "C004"),
        ({"text_config": {"projection_size": "wide"}}, "C003"),
        ({"text_config": {"novel_field": 3}}, "C021"),
        ({"architectures": ["SiglipForImageClassification"]}, "C024"),
    ],
)
def test_what_headway_does_not_have_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_siglip({"model_type": "siglip", **changes})
    assert caught.value.code == code


LARGE = dict(hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24)
SO400M = dict(hidden_size=1152, intermediate_size=4304, num_attention_heads=16, num_hidden_layers=27)
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "google/siglip-base-patch16-224": ({}, {}, 203_155_970),
    "google/siglip-base-patch16-512": ({}, {"image_size": 512}, 203_791_874),
    "google/siglip-large-patch16-256": (LARGE, {**LARGE, "image_size": 256}, 652_150_786),
    "google/siglip-so400m-patch14-384": (
        SO400M, {**SO400M, "image_size": 384, "patch_size": 14}, 877_960_498,
    ),
}  # fmt: skip
"""What their config.json holds beside the model types, and the published count of weights."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_read_and_counted(name: str) -> None:
    import transformers

    text, vision, count = PUBLISHED[name]
    config = read_siglip(
        dict(
            model_type="siglip", architectures=["SiglipModel"], initializer_factor=1.0, torch_dtype="float32",
            text_config={"model_type": "siglip_text_model", **text},
            vision_config={"model_type": "siglip_vision_model", **vision},
        )
    )  # fmt: skip
    with torch.device("meta"):
        theirs = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))
        assert TwoTowers(config).parameter_count() == sum(p.numel() for p in theirs.parameters()) == count
