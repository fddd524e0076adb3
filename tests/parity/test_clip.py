"""CLIP against `transformers`, in float32, to 1e-5: both towers, projections, logits, saved and loaded back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.checks.attention_maps import attention_maps
from headway.checks.equivalence.suite import check_model
from headway.config.networks.towers import TwoTowersConfig
from headway.errors import ConfigError
from headway.hub.convert import load_tensors
from headway.hub.folder import describe, load_model, open_folder, save_model
from headway.hub.tables.clip import read_clip
from headway.joint.towers import TwoTowers

TOLERANCE = 1e-5
EOS, PAD = 49, 1
TOWER: dict[str, Any] = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
TEXT: dict[str, Any] = dict(
    TOWER, vocab_size=50, max_position_embeddings=20, eos_token_id=EOS, bos_token_id=48, pad_token_id=PAD
)
VISION: dict[str, Any] = dict(TOWER, hidden_size=40, image_size=16, patch_size=4)


def make_oracle(**text: Any) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=TEXT | text, vision_config=VISION, projection_dim=24)
    oracle = transformers.CLIPModel(config).eval()
    for parameter in oracle.parameters():  # fresh weights are so small that a wrong field would hardly show
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return oracle


@pytest.fixture(scope="module")
def oracle() -> Any:
    return make_oracle()


@pytest.fixture
def folder(oracle: Any, tmp_path: Path) -> Path:
    oracle.save_pretrained(tmp_path / "theirs")
    return tmp_path / "theirs"


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Images, token ids with an end token, and their mask; the second text is padded."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(4, 48, (3, 12), generator=generator)
    ids[:, -1], ids[1, 7], ids[1, 8:] = EOS, EOS, PAD
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[1, 8:] = False
    return torch.randn(2, 3, 16, 16, generator=generator), ids, mask


def gap(model: TwoTowers, oracle: Any, masked: bool) -> dict[str, float]:
    images, ids, mask = inputs()
    with torch.no_grad():
        out = oracle(input_ids=ids, pixel_values=images, attention_mask=mask.long() if masked else None)
        image, text = model.image_features(images), model.text_features(ids, mask if masked else None)
        theirs = {
            "image": oracle.get_image_features(images).pooler_output,
            "text": oracle.get_text_features(ids, mask.long() if masked else None).pooler_output,
            "logits": out.logits_per_image,
        }
        ours = {"image": image, "text": text, "logits": model.similarity(image, text)}
    return {name: float((ours[name] - theirs[name]).abs().max()) for name in ours}


def towers_of(folder: Path) -> TwoTowers:
    model = load_model(folder)
    assert isinstance(model, TwoTowers)
    return model


@pytest.mark.parametrize("masked", [True, False])
def test_features_and_logits_agree(folder: Path, oracle: Any, masked: bool) -> None:
    assert max(gap(towers_of(folder), oracle, masked).values()) <= TOLERANCE


def test_the_first_files_take_the_token_with_the_highest_id(tmp_path: Path) -> None:
    """Their config names an end token that is none of the vocabulary's."""
    oracle = make_oracle(eos_token_id=2)
    oracle.save_pretrained(tmp_path / "theirs")
    model = towers_of(tmp_path / "theirs")
    assert model.config.text_pool == "highest"
    assert max(gap(model, oracle, masked=True).values()) <= TOLERANCE


def test_transformers_loads_what_headway_saved(folder: Path, oracle: Any, tmp_path: Path) -> None:
    model = towers_of(folder)
    save_model(model, tmp_path / "ours")
    back, info = type(oracle).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert max(gap(model, back.eval(), masked=True).values()) <= TOLERANCE
    again = towers_of(tmp_path / "ours")
    assert again.config == model.config
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("side", "part", "fields"),
    [
        ("image", "encoder", {"activation": "gelu"}),
        ("image", "encoder", {"norm_eps": 1e-2}),
        ("image", "source", {"norm_eps": 1e-2}),
        ("text", "encoder", {"causal": False}),
        ("text", "encoder", {"activation": "gelu"}),
    ],
)
def test_one_wrong_field_shows(folder: Path, oracle: Any, side: str, part: str, fields: dict[str, Any]) -> None:
    opened = open_folder(folder)
    tower = getattr(opened.config, side)
    wrong = replace(opened.config, **{side: replace(tower, **{part: replace(getattr(tower, part), **fields)})})
    assert isinstance(wrong, TwoTowersConfig) and wrong != opened.config
    with torch.device("meta"):
        model = TwoTowers(wrong)
    load_tensors(model, opened.family, opened.architecture, opened.weights)
    found = gap(model.eval(), oracle, masked=True)
    assert found[side] > 10 * TOLERANCE and found["logits"] > 10 * TOLERANCE


def test_gradients_of_the_temperature_agree(folder: Path, oracle: Any) -> None:
    images, ids, mask = inputs()
    model = towers_of(folder)
    loss = torch.nn.functional.cross_entropy
    loss(model.similarity(model.image_features(images), model.text_features(ids, mask)), torch.arange(2)).backward()
    oracle.zero_grad()
    loss(oracle(ids, images, mask.long()).logits_per_image, torch.arange(2)).backward()
    assert model.logit_scale.grad is not None
    assert abs(float(model.logit_scale.grad) - float(oracle.logit_scale.grad)) <= TOLERANCE
    weight = model.image_projection.weight.grad
    assert weight is not None and torch.allclose(weight, oracle.visual_projection.weight.grad, atol=TOLERANCE)


def test_every_check_passes(folder: Path) -> None:
    results = {result.name: result for result in check_model(load_model(folder), compiled=False)}
    assert all(result.ok and result.means for result in results.values()), results
    assert {"image: batch = single", "text: right padding = none", "text: packed = separate", "saved = loaded"} <= set(
        results
    )


def test_a_variant_that_clip_cannot_express_has_our_own_layout(folder: Path, tmp_path: Path) -> None:
    config = towers_of(folder).config
    assert config.image.encoder is not None
    other = replace(config.image, encoder=replace(config.image.encoder, norm="rmsnorm"))
    model = TwoTowers(replace(config, image=other)).eval()
    assert describe(model)[0] is None
    save_model(model, tmp_path / "own")
    again = towers_of(tmp_path / "own")
    assert again.config == model.config
    assert torch.equal(again.logit_scale, model.logit_scale)


def test_dropout_acts_in_training_only(folder: Path) -> None:
    config = towers_of(folder).config
    assert config.text.encoder is not None
    dropped = replace(config.text, encoder=replace(config.text.encoder, dropout=0.1, drop_path=0.1))
    family, _ = describe(TwoTowers(replace(config, text=dropped)))
    assert family is not None and family.name == "clip"


def test_the_older_place_of_a_towers_config_replaces_the_other(oracle: Any) -> None:
    """As in `transformers`: what it does not name has its default value."""
    import transformers

    theirs = json.loads(oracle.config.to_json_string(use_diff=False))
    theirs["text_config_dict"] = {"hidden_size": 32, "num_hidden_layers": 2, "eos_token_id": 7}
    expected = transformers.CLIPConfig.from_dict(json.loads(json.dumps(theirs))).text_config
    text = read_clip(theirs).text
    assert text.encoder is not None and text.source is not None and text.source.kind == "tokens"
    assert (text.encoder.n_heads, text.encoder.d_ff) == (expected.num_attention_heads, expected.intermediate_size)
    assert (text.source.vocab, read_clip(theirs).special.eos) == (expected.vocab_size, expected.eos_token_id)


@pytest.mark.parametrize("part", ["vision_config", "text_config"])
def test_an_absent_field_means_what_it_means_to_transformers(oracle: Any, part: str) -> None:
    import transformers

    complete = json.loads(transformers.CLIPConfig().to_json_string(use_diff=False))
    expected = read_clip(complete)
    for name in complete[part]:
        less = {key: value for key, value in complete[part].items() if key != name}
        assert read_clip(complete | {part: less}) == expected, name
    assert read_clip({"model_type": "clip"}) == expected


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"vision_config": {"hidden_act": "mish"}}, "C022"),
        ({"vision_config": {"image_size": [16, 32]}}, "C022"),
        ({"text_config": {"model_type": "bert"}}, "C022"),
        ({"text_config": {"novel_field": 3}}, "C021"),
        ({"text_config": [1]}, "C002"),
        ({"text_config": {"eos_token_id": [7, 8]}}, "C004"),
        ({"projection_dim": 0}, "C003"),
        ({"projection_dim": "wide"}, "C003"),
        ({"logit_scale_init_value": "hot"}, "C002"),
        ({"logit_scale_init_value": 1e9}, "C003"),
        ({"novel_field": 3}, "C021"),
        ({"architectures": ["CLIPForImageClassification"]}, "C024"),
    ],
)
def test_what_headway_does_not_have_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_clip({"model_type": "clip", **changes})
    assert caught.value.code == code


PUBLISHED_TEXT: dict[str, Any] = dict(
    _name_or_path="", add_cross_attention=False, architectures=None, attention_dropout=0.0, bad_words_ids=None,
    bos_token_id=0, chunk_size_feed_forward=0, cross_attention_hidden_size=None, dropout=0.0, eos_token_id=2,
    hidden_act="quick_gelu", hidden_size=512, initializer_factor=1.0, initializer_range=0.02, intermediate_size=2048,
    layer_norm_eps=1e-05, max_length=20, max_position_embeddings=77, model_type="clip_text_model", top_p=1.0,
    num_attention_heads=8, num_hidden_layers=12, pad_token_id=1, problem_type=None, projection_dim=512, top_k=50,
    torch_dtype=None, use_bfloat16=False, vocab_size=49408, id2label={"0": "LABEL_0", "1": "LABEL_1"},
)  # fmt: skip
PUBLISHED_VISION: dict[str, Any] = dict(
    attention_dropout=0.0, dropout=0.0, hidden_act="quick_gelu", hidden_size=768, image_size=224, patch_size=32,
    intermediate_size=3072, layer_norm_eps=1e-05, model_type="clip_vision_model", num_attention_heads=12,
    num_hidden_layers=12, projection_dim=512, initializer_range=0.02, is_decoder=False, return_dict=True,
)  # fmt: skip
LARGE_TEXT = dict(
    hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_hidden_layers=12, projection_dim=768
)  # fmt: skip
LARGE_VISION = dict(
    hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24, patch_size=14,
    projection_dim=768,
)  # fmt: skip
PUBLISHED: dict[str, tuple[dict[str, Any], int, str]] = {
    "openai/clip-vit-base-patch32": (
        dict(projection_dim=512, text_config=PUBLISHED_TEXT, vision_config=PUBLISHED_VISION, text_config_dict=None),
        151_277_313,
        "highest",
    ),
    "openai/clip-vit-base-patch16": (
        dict(projection_dim=512, text_config=PUBLISHED_TEXT, vision_config={**PUBLISHED_VISION, "patch_size": 16}),
        149_620_737,
        "highest",
    ),
    "openai/clip-vit-large-patch14": (
        dict(
            projection_dim=768, text_config={**PUBLISHED_TEXT, **LARGE_TEXT}, text_config_dict=LARGE_TEXT,
            vision_config={**PUBLISHED_VISION, **LARGE_VISION}, vision_config_dict=LARGE_VISION,
        ),
        427_616_513,
        "eos",
    ),
}  # fmt: skip
"""config.json, the published count of weights, and how `transformers` finds the end of a text."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_read_and_counted(name: str) -> None:
    more, count, pool = PUBLISHED[name]
    theirs = dict(
        model_type="clip", architectures=["CLIPModel"], initializer_factor=1.0, logit_scale_init_value=2.6592,
        torch_dtype="float32", transformers_version=None, **more,
    )  # fmt: skip
    config = read_clip(theirs)
    with torch.device("meta"):
        assert TwoTowers(config).parameter_count() == count
    assert config.text_pool == pool


def test_attention_maps_name_the_tower(folder: Path) -> None:
    images, ids, _ = inputs()
    model = load_model(folder)
    assert set(attention_maps(model, images, layers=[1])) == {"image.encoder.blocks.1.attention"}
    maps = attention_maps(model, ids)
    assert set(maps) == {f"text.encoder.blocks.{i}.attention" for i in range(2)}
    assert all(float(each.triu(1).abs().max()) == 0 for each in maps.values()), "a text is read causally"
