"""Mixtures of experts: Mixtral (Jiang et al. 2024), Qwen2-MoE (2024), Qwen3-MoE (2025)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, read_tied, switch
from headway.hub.tables.decoders.heads import (
    FULL,
    SLIDING,
    count_of,
    heads,
    layer_types,
    layers_of,
    read_tag_dropout,
    set_layers,
)
from headway.hub.tables.decoders.llama import (
    ALL_HEADS,
    ATTENTION,
    FIRST_NORM,
    LLAMA_FIXED,
    NO_BIAS,
    QK_NORMS,
    SECOND_NORM,
    UNUSED,
    llama_fields,
    model_tensors,
    read_llama,
    write_llama,
)
from headway.hub.tables.decoders.qwen import SIZES
from headway.hub.tables.rope import rope_settings

_ROUTED = ("output_router_logits", "router_jitter_noise")

MIXTRAL = Family(
    name="mixtral",
    fields=(
        *llama_fields(
            without=("intermediate_size", "attention_bias", "mlp_bias"),
            num_key_value_heads=8,
            rms_norm_eps=1e-5,
            max_position_embeddings=131072,
        ),
        Field("intermediate_size", "decoder.d_ff decoder.experts.d_ff", 14336),
        Field("num_local_experts", "decoder.experts.count", 8),
        Field("num_experts_per_tok", "decoder.experts.top_k", 2),
        Field("router_aux_loss_coef", "decoder.experts.balance", 0.001),
        Field("sliding_window", "decoder.window"),
    ),
    fixed=LLAMA_FIXED | NO_BIAS,
    tensors=model_tensors(
        FIRST_NORM,
        *ATTENTION,
        SECOND_NORM,
        ("ffn.router", "layers.{i}.block_sparse_moe.gate"),
        ("ffn.up", "layers.{i}.block_sparse_moe.experts.{e}.w1|layers.{i}.block_sparse_moe.experts.{e}.w3"),
        ("ffn.down", "layers.{i}.block_sparse_moe.experts.{e}.w2"),
    ),
    heads=heads("Mixtral", *ALL_HEADS),
    prefix="model.",
    aliases={"num_experts": "num_local_experts"},
    unused=(*UNUSED, *_ROUTED),
    special={"bos": 1, "eos": 2},
    on_read=read_llama(theta=1e6),
    on_write=write_llama,
)

_MLP, _EXPERT = "layers.{i}.mlp", "layers.{i}.mlp.experts.{e}"
_QWEN_EXPERTS = (
    ("ffn.router", f"{_MLP}.gate", "", "block.experts"),
    ("ffn.up", f"{_EXPERT}.gate_proj|{_EXPERT}.up_proj", "", "block.experts"),
    ("ffn.down", f"{_EXPERT}.down_proj", "", "block.experts"),
    ("ffn.up", f"{_MLP}.gate_proj|{_MLP}.up_proj", "", "!block.experts"),
    ("ffn.down", f"{_MLP}.down_proj", "", "!block.experts"),
)


def _read_qwen_moe(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_tied(settings, theirs, False)
    read_tag_dropout(settings, theirs)
    count, rope = count_of(settings), rope_settings(settings, theirs)
    dense, every = theirs.get("mlp_only_layers") or [], theirs.get("decoder_sparse_step", 1)
    if not isinstance(dense, list) or type(every) is not int or every < 1:
        what = f"mlp_only_layers = {short(dense)}, decoder_sparse_step = {short(every)}"
        raise ConfigError("C003", f"config.json: {what} should be a list of layers and a number of at least 1")
    plain = [layer in dense or (layer + 1) % every != 0 for layer in range(count)]
    window = theirs.get("sliding_window", 4096) if switch(theirs, "use_sliding_window", False) else None
    if count and all(plain):
        raise ConfigError(
            "C022", "config.json: no layer has experts", "such a model belongs to the family without them"
        )
    set_layers(settings, [{"rope": rope, "window": window, "dense": one} for one in plain])


def _write_qwen_moe(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None
    write_llama(theirs, config)
    layers = layers_of(config.decoder)
    theirs["mlp_only_layers"] = [number for number, layer in enumerate(layers) if layer.dense]
    theirs["sliding_window"] = layers[0].window if layers else None
    theirs["use_sliding_window"] = theirs["sliding_window"] is not None


def _expert_fields(name: str, top_k: int, width: int, count: int) -> tuple[Field, ...]:
    return (
        Field("moe_intermediate_size", "decoder.experts.d_ff", width),
        Field(name, "decoder.experts.count", count),
        Field("num_experts_per_tok", "decoder.experts.top_k", top_k),
        Field("norm_topk_prob", "decoder.experts.normalised", False),
        Field("router_aux_loss_coef", "decoder.experts.balance", 0.001),
    )


_QWEN_UNUSED = (
    *(*UNUSED, *_ROUTED, "mlp_only_layers", "decoder_sparse_step"),
    *("sliding_window", "use_sliding_window", "max_window_layers"),
)

QWEN3_MOE = Family(
    name="qwen3_moe",
    fields=(
        *llama_fields(
            without=("mlp_bias",),
            hidden_size=2048,
            num_hidden_layers=24,
            num_key_value_heads=4,
            intermediate_size=6144,
            **SIZES,
        ),
        *_expert_fields("num_local_experts", 8, 768, 128),
    ),
    fixed={**LLAMA_FIXED, "decoder.ffn_bias": False, "decoder.qk_norm": "head"},
    tensors=model_tensors(FIRST_NORM, *ATTENTION, *QK_NORMS, SECOND_NORM, *_QWEN_EXPERTS),
    heads=heads("Qwen3Moe", *ALL_HEADS, span="transformer."),
    prefix="model.",
    aliases={"num_experts": "num_local_experts"},
    unused=_QWEN_UNUSED,
    on_read=_read_qwen_moe,
    on_write=_write_qwen_moe,
)


def _read_qwen2_moe(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    _read_qwen_moe(settings, theirs, names)
    if SLIDING in layer_types(settings, theirs, [FULL]):
        raise ConfigError("C022", f"config.json: layer_types has {SLIDING}; headway supports qwen2_moe without windows")


_SHARED = f"{_MLP}.shared_expert"

QWEN2_MOE = Family(
    name="qwen2_moe",
    fields=(
        *llama_fields(
            without=("head_dim", "attention_bias", "mlp_bias"),
            hidden_size=2048,
            num_hidden_layers=24,
            num_attention_heads=16,
            num_key_value_heads=16,
            intermediate_size=5632,
            **SIZES,
        ),
        *_expert_fields("num_experts", 4, 1408, 60),
        Field("shared_expert_intermediate_size", "decoder.experts.shared", 5632),
        Field("qkv_bias", "decoder.qkv_bias", True),
    ),
    fixed={**LLAMA_FIXED, "decoder.out_bias": False, "decoder.ffn_bias": False, "decoder.experts.shared_gate": True},
    tensors=model_tensors(
        *(FIRST_NORM, *ATTENTION, SECOND_NORM, *_QWEN_EXPERTS),
        ("ffn.shared.up", f"{_SHARED}.gate_proj|{_SHARED}.up_proj"),
        ("ffn.shared.down", f"{_SHARED}.down_proj"),
        ("ffn.shared_gate", f"{_MLP}.shared_expert_gate"),
    ),
    heads=heads("Qwen2Moe", *ALL_HEADS),
    prefix="model.",
    only={"use_sliding_window": False},
    unused=(*_QWEN_UNUSED, "layer_types"),
    on_read=_read_qwen2_moe,
    on_write=_write_qwen_moe,
)
