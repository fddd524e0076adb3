"""A family's table: what an absent field means, two names of one field, what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headway.config.model import ModelConfig, StackConfig
from headway.errors import ConfigError
from headway.hub.family import read_config, relative_of
from headway.hub.tables import FAMILIES
from tests.hub.conftest import defaults
from tests.hub.published_decoders import DECODERS

HEADED = [(kind, architecture) for kind, family in FAMILIES.items() for architecture in family.heads]


def plain(config: ModelConfig) -> ModelConfig:
    """Widths of heads counted out, which a config may leave to be derived."""

    def stack(part: StackConfig | None) -> StackConfig | None:
        return part and replace(part, d_head=part.head_width, n_kv_heads=part.kv_heads)

    return replace(config, encoder=stack(config.encoder), decoder=stack(config.decoder))


def read(kind: str, theirs: dict[str, Any]) -> ModelConfig:
    return plain(read_config(FAMILIES[kind], theirs))


def refused(kind: str, theirs: dict[str, Any], code: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(kind, {"model_type": kind, **theirs})
    assert caught.value.code == code, str(caught.value)
    return caught.value.message


@pytest.mark.parametrize(("kind", "architecture"), HEADED)
def test_an_absent_field_means_what_it_means_to_transformers(kind: str, architecture: str) -> None:
    complete = defaults(kind) | {"architectures": [architecture]}
    expected = read(kind, complete)
    for field in complete.keys() - {"architectures", "model_type"}:
        assert read(kind, {k: v for k, v in complete.items() if k != field}) == expected, field
    assert read(kind, {"model_type": kind, "architectures": [architecture]}) == expected


# --- two names, two places ------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "alias"), [(k, a) for k, family in FAMILIES.items() for a in family.aliases])
def test_a_second_name_of_a_field_is_read_and_may_not_disagree(kind: str, alias: str) -> None:
    import transformers

    name = FAMILIES[kind].aliases[alias]
    assert transformers.CONFIG_MAPPING[kind].attribute_map[alias] == name
    usual = defaults(kind)[name]
    value, other = ("relu", "gelu") if isinstance(usual, str) else (usual // 2, usual // 2 + 1)
    once = read(kind, {"model_type": kind, name: value})
    assert read(kind, {"model_type": kind, alias: value}) == once
    assert read(kind, {"model_type": kind, alias: value, name: value}) == once
    message = refused(kind, {alias: value, name: other}, "C004")
    assert alias in message and name in message


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_second_name_is_known(kind: str) -> None:
    import transformers

    assert dict(FAMILIES[kind].aliases) == dict(transformers.CONFIG_MAPPING[kind].attribute_map)


LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["llama", "gemma", "qwen2", "qwen3_moe", "granite", "olmo2", "starcoder2"])
@pytest.mark.parametrize(
    "theirs",
    [
        {"rope_theta": 5e5},
        {"rope_theta": 10000, "rope_scaling": {"type": "linear", "factor": 4}},
        {"rope_scaling": LINEAR, "rope_parameters": LINEAR | {"rope_theta": 10000.0}},
        {"rope_theta": 5e5, "rope_scaling": LLAMA3 | {"type": "llama3"}},
        {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}, "rope_theta": 5e5},
        {"rope_parameters": {k: v for k, v in LLAMA3.items() if "original" not in k}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0, "factor": None}, "rope_scaling": None},
    ],
)
def test_rotary_positions_are_those_of_transformers(kind: str, theirs: dict[str, Any]) -> None:
    import transformers

    expected = transformers.CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(theirs))).rope_parameters
    stack = read(kind, {"model_type": kind, **theirs}).decoder
    assert stack is not None and stack.rope is not None
    rope = stack.rope
    assert (rope.theta, rope.scaling) == (expected["rope_theta"], expected["rope_type"].replace("default", "none"))
    if rope.scaling != "none":
        assert rope.factor == expected["factor"]
    if rope.scaling == "llama3":
        assert (rope.low_factor, rope.high_factor) == (expected["low_freq_factor"], expected["high_freq_factor"])
        assert rope.original_length == expected["original_max_position_embeddings"]


@pytest.mark.parametrize("kind", ["llama", "gemma"])
@pytest.mark.parametrize(
    ("theirs", "code", "parts"),
    [
        ({"rope_scaling": LINEAR, "rope_parameters": LLAMA3}, "C004", ("rope_scaling", "rope_parameters")),
        ({"rope_scaling": LINEAR, "rope_parameters": LINEAR | {"factor": 2.0}}, "C004", ("4.0", "2.0")),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e4}}, "C004", ("500000.0", "10000.0")),
        ({"rope_theta": 5e5, "rope_scaling": LINEAR | {"rope_theta": 1e4}}, "C004", ("rope_scaling.rope_theta",)),
        ({"rope_parameters": LINEAR | {"attention_factor": 2.0}}, "C021", ("attention_factor",)),
        ({"rope_parameters": {"factor": 4.0}}, "C021", ("factor",)),
        ({"rope_scaling": LINEAR | {"low_freq_factor": 1.0}}, "C021", ("low_freq_factor",)),
        ({"rope_parameters": {"full_attention": LINEAR}}, "C021", ("full_attention",)),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "C021", ("partial_rotary_factor",)),
        ({"rope_scaling": LINEAR | {"type": "llama3"}}, "C022", ("linear",)),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "C022", ("dynamic",)),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "C022", ("yarn",)),
        ({"rope_scaling": "linear"}, "C002", ("rope_scaling",)),
        ({"rope_parameters": [4.0]}, "C002", ("rope_parameters",)),
        ({"rope_scaling": {"rope_type": "linear"}}, "C004", ("factor",)),
        ({"partial_rotary_factor": 0.5}, "C021", ("partial_rotary_factor",)),
    ],
)
def test_rotary_positions_that_are_unclear(kind: str, theirs: dict[str, Any], code: str, parts: tuple[str]) -> None:
    message = refused(kind, theirs, code)
    assert all(part in message for part in parts), message


# --- refused by name ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["relative_key", "relative_key_query"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "big_bird"])
def test_relative_positions_of_bert(kind: str, value: str) -> None:
    message = refused(kind, {"position_embedding_type": value}, "C022")
    assert "position_embedding_type" in message and value in message


@pytest.mark.parametrize("kind", ["vit", "deit", "dinov2"])
@pytest.mark.parametrize("field", ["image_size", "patch_size"])
def test_a_size_in_two_numbers(kind: str, field: str) -> None:
    assert read(kind, {"model_type": kind, field: [28, 28]}) == read(kind, {"model_type": kind, field: 28})
    for wrong in ([28, 42], [28], [28, 28, 28]):
        assert field in refused(kind, {field: wrong}, "C022")
    refused(kind, {field: ["28", "28"]}, "C002")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantization_config", {"quant_method": "gptq", "bits": 4}),
        ("vision_config", {"hidden_size": 8}),
        ("text_config", {"hidden_size": 8}),
        ("per_layer_config", {"0": {"hidden_size": 8}}),
        ("layer_types", ["sliding_attention"]),
        ("pruned_heads", {"0": [1]}),
        ("tie_encoder_decoder", True),
    ],
)
def test_a_part_that_would_change_the_model(kind: str, field: str, value: Any) -> None:
    known = field == "quantization_config" or field in FAMILIES[kind].unused  # which its table reads
    assert field in refused(kind, {field: value}, "C022" if known else "C021")


@pytest.mark.parametrize("like", ["Qwen/Qwen3-8B", "google/gemma-2-2b", "EleutherAI/pythia-70m", "facebook/opt-125m"])
def test_the_relative_of_an_unknown_family_knows_most_of_its_fields(like: str) -> None:
    theirs = DECODERS[like] | {"model_type": "novel"}
    found = relative_of(theirs, FAMILIES)
    assert f"most like those of {DECODERS[like]['model_type']}: docs/extend/family.md" in found
    assert "which does not know 'swirl_factor'" in relative_of({**theirs, "swirl_factor": 2.5}, FAMILIES)
    assert "most like" not in relative_of({"model_type": "novel", "swirl_factor": 2.5}, FAMILIES)


FIELD = {"num_experts_per_tok": "top_k", "num_hidden_layers": "layers", "rope_scaling": "longrope"}
"""How a message names a field, if not by its own name."""
FIELD |= {"mlp_only_layers": "experts"}


@pytest.mark.parametrize(
    ("kind", "theirs", "code"),
    [
        ("big_bird", {"attention_type": "sliding"}, "C022"),
        ("big_bird", {"use_bias": None}, "C022"),
        ("roberta", {"pad_token_id": None}, "C022"),
        ("roberta", {"pad_token_id": -1}, "C022"),
        ("distilbert", {"tie_weights_": False}, "C022"),
        ("bart", {"normalize_before": True}, "C022"),
        ("bart", {"normalize_embedding": False}, "C022"),
        ("bart", {"static_position_embeddings": True}, "C022"),
        ("bart", {"scale_embedding": "yes"}, "C002"),
        ("gpt2", {"tie_word_embeddings": "false"}, "C002"),
        ("gemma", {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu"}, "C004"),
        ("gemma", {"mlp_bias": True}, "C021"),
        ("vit", {"pooler_output_size": 96}, "C022"),
        ("t5", {"dense_act_fn": "mish"}, "C022"),
        ("llama", {"rope_interleaved": True}, "C021"),
        ("qwen2", {"max_window_layers": "all"}, "C002"),
        ("qwen2", {"use_sliding_window": "yes"}, "C002"),
        ("qwen2", {"layer_types": ["linear_attention"] * 32}, "C022"),
        ("qwen3_moe", {"mlp_only_layers": list(range(24))}, "C022"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "C003"),
        ("qwen3_moe", {"num_experts_per_tok": 129}, "C003"),
        ("qwen2_moe", {"use_sliding_window": True}, "C022"),
        ("qwen2_moe", {"layer_types": ["sliding_attention"] * 24}, "C022"),
        ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [4.0]}}, "C022"),
        ("gemma2", {"use_bidirectional_attention": True}, "C022"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "C003"),
        ("gemma2", {"num_hidden_layers": "many"}, "C003"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "C022"),
        ("gemma3_text", {"sliding_window_pattern": 0}, "C003"),
        ("granite", {"logits_scaling": 0}, "C003"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "C003"),
        ("smollm3", {"no_rope_layer_interval": 0}, "C003"),
        ("stablelm", {"qk_layernorm": True}, "C022"),
        ("cohere", {"use_qk_norm": True}, "C022"),
        ("falcon", {"alibi": True}, "C022"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "C022"),
        ("falcon", {"new_decoder_architecture": True, "parallel_attn": False}, "C022"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "C022"),
        ("opt", {"layer_norm_elementwise_affine": False}, "C022"),
        ("opt", {"architectures": ["OPTModel"], "word_embed_proj_dim": 512}, "C022"),
    ],
)
def test_a_switch_headway_does_not_have(kind: str, theirs: dict[str, Any], code: str) -> None:
    message = refused(kind, theirs, code)
    assert FIELD.get(key := next(reversed(theirs)), key) in message
