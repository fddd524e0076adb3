"""Tables of vision models: ViT (Dosovitskiy et al. 2021), DeiT (Touvron et al. 2021), DINOv2 (Oquab et al. 2023)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in, switch
from headway.hub.tables.bert import ACTIVATIONS

_EMBED = (
    Tensor("source.first", "embeddings.cls_token", "lead2"),
    Tensor("source.second", "embeddings.distillation_token", "lead2", when="source.distillation"),
    Tensor("source.mask", "embeddings.mask_token", "lead1"),
    Tensor("source.positions", "embeddings.position_embeddings", "lead1"),
    Tensor("source.project", "embeddings.patch_embeddings.projection", "patches"),
)


_FIELDS = (
    Field("hidden_size", "encoder.d_model", 768),
    Field("num_hidden_layers", "encoder.n_layers", 12),
    Field("num_attention_heads", "encoder.n_heads", 12),
    Field("hidden_act", "encoder.activation", "gelu", ACTIVATIONS),
    Field("hidden_dropout_prob", "encoder.dropout source.dropout", 0.0),
    Field("attention_probs_dropout_prob", "encoder.attention_dropout", 0.0),
    Field("image_size", "source.image", 224),
    Field("num_channels", "source.channels", 3),
    Field("qkv_bias", "encoder.qkv_bias", True),
)

_BACKBONE = ("out_features", "out_indices", "stage_names")
"""Layers that a backbone gives to a detector; headway has no detectors."""

_QKV = "|".join(f"encoder.layer.{{i}}.attention.attention.{part}" for part in ("query", "key", "value"))
_FIXED = {"source.kind": "patches"}


def _block(*pairs: tuple[str, str]) -> tuple[Tensor, ...]:
    named = (Tensor(f"encoder.blocks.{{i}}.{ours}", f"encoder.layer.{{i}}.{theirs}") for ours, theirs in pairs)
    return (Tensor("encoder.blocks.{i}.attention.qkv", _QKV), *named)


def square(settings: Config) -> None:
    """A size may be given as height and width."""
    for name, path in (("image_size", "source.image"), ("patch_size", "source.patch")):
        if isinstance(size := settings[path], list):
            if len(size) != 2 or size[0] != size[1]:
                raise ConfigError("C022", f"config.json: {name} = {short(size)}; headway knows squares, [n, n] or n")
            settings[path] = size[0]


def _read_vit(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    square(settings)
    pooled = theirs.get("pooler_output_size")
    if pooled and pooled != settings["encoder.d_model"]:
        both = f"pooler_output_size = {short(pooled)}, hidden_size = {short(settings['encoder.d_model'])}"
        raise ConfigError("C022", f"config.json: {both}; headway supports a pooler as wide as the model")
    settings["source.mask_token"] = any(n.endswith("mask_token") for n in names)
    if settings.get("classify.labels") == 0 and names and not any("pooler." in n for n in names):
        for path in [p for p in settings if p.startswith("classify.")]:
            del settings[path]


VIT = Family(
    name="vit",
    fields=(
        *_FIELDS,
        Field("intermediate_size", "encoder.d_ff", 3072),
        Field("patch_size", "source.patch", 16),
        Field("layer_norm_eps", "encoder.norm_eps", 1e-12),
    ),
    fixed=_FIXED,
    tensors=(
        *_EMBED,
        *_block(
            ("attention.out", "attention.output.dense"),
            ("residual1.norm", "layernorm_before"),
            ("residual2.norm", "layernorm_after"),
            ("ffn.up", "intermediate.dense"),
            ("ffn.down", "output.dense"),
        ),
        Tensor("encoder.norm", "layernorm"),
    ),
    heads={
        "ViTModel": Head(
            {"classify.labels": 0, "classify.dense": "tanh"},
            (Tensor("classify.dense", "{prefix}pooler.dense"),),
            prefix="",
        ),
        "ViTForImageClassification": Head(
            {"classify.labels": 2}, (Tensor("classify.output", "classifier"),), labels="classify.labels"
        ),
    },
    prefix="vit.",
    only={"pooler_act": "tanh"},
    unused=("encoder_stride", "pooler_output_size"),
    on_read=_read_vit,
)


DEIT = replace(
    VIT,
    name="deit",
    fixed=_FIXED | {"source.distillation": True},
    heads={
        "DeiTModel": VIT.heads["ViTModel"],
        "DeiTForImageClassification": VIT.heads["ViTForImageClassification"],
        "DeiTForImageClassificationWithTeacher": Head(
            {"classify.labels": 2, "classify.distilled": True},
            (Tensor("classify.output", "cls_classifier"), Tensor("classify.second", "distillation_classifier")),
            labels="classify.labels",
        ),
    },
    prefix="deit.",
)
"""Published models without a distillation token are of the family ViT."""


def _read_dino(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    square(settings)
    ratio = theirs.get("mlp_ratio", 4)
    if type(ratio) not in (int, float) or not 0 < ratio <= 64:
        raise ConfigError("C003", f"config.json: mlp_ratio = {short(ratio)} is outside 0 … 64")
    width = int(size_in(settings, "encoder.d_model") * ratio)
    settings["encoder.d_ff"] = width
    if switch(theirs, "use_swiglu_ffn", False):
        settings["encoder.d_ff"] = _swiglu_width(width)
        settings["encoder.gated"], settings["encoder.activation"] = True, "silu"
    settings["source.mask_token"] = switch(theirs, "use_mask_token", True)


def _swiglu_width(width: int) -> int:
    """Two thirds of a width, rounded up to a multiple of eight."""
    return (int(width * 2 / 3) + 7) // 8 * 8


def _write_dino(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None and config.source is not None and config.source.kind == "patches"
    stack = config.encoder
    theirs["use_swiglu_ffn"] = stack.gated
    ratios = (ratio for ratio in range(1, 17) if _swiglu_width(ratio * stack.d_model) == stack.d_ff)
    theirs["mlp_ratio"] = next(ratios, 4) if stack.gated else stack.d_ff // stack.d_model
    theirs["use_mask_token"] = config.source.mask_token
    if stack.gated:
        theirs["hidden_act"] = "gelu"
    theirs |= {"apply_layernorm": True, "reshape_hidden_states": True}


DINOV2 = Family(
    name="dinov2",
    fields=(
        *_FIELDS,
        Field("patch_size", "source.patch", 14),
        Field("layer_norm_eps", "encoder.norm_eps", 1e-6),
        Field("layerscale_value", "encoder.layer_scale", 1.0),
        Field("drop_path_rate", "encoder.drop_path", 0.0),
    ),
    fixed=_FIXED,
    tensors=(
        *_EMBED,
        *_block(
            ("attention.out", "attention.output.dense"),
            ("residual1.norm", "norm1"),
            ("residual1.scale", "layer_scale1.lambda1"),
            ("residual2.norm", "norm2"),
            ("residual2.scale", "layer_scale2.lambda1"),
        ),
        Tensor("encoder.blocks.{i}.ffn.up", "encoder.layer.{i}.mlp.weights_in", when="encoder.gated"),
        Tensor("encoder.blocks.{i}.ffn.down", "encoder.layer.{i}.mlp.weights_out", when="encoder.gated"),
        Tensor("encoder.blocks.{i}.ffn.up", "encoder.layer.{i}.mlp.fc1", when="!encoder.gated"),
        Tensor("encoder.blocks.{i}.ffn.down", "encoder.layer.{i}.mlp.fc2", when="!encoder.gated"),
        Tensor("encoder.norm", "layernorm"),
    ),
    heads={
        "Dinov2Model": Head(prefix=""),
        "Dinov2ForImageClassification": Head(
            {"classify.labels": 2, "classify.pool": "first_mean"},
            (Tensor("classify.output", "classifier"),),
            labels="classify.labels",
        ),
    },
    prefix="dinov2.",
    only={"apply_layernorm": True},
    unused=("mlp_ratio", "use_swiglu_ffn", "use_mask_token", "reshape_hidden_states", *_BACKBONE),
    on_read=_read_dino,
    on_write=_write_dino,
)
