"""The tables of CLIP (Radford et al. 2021): its two towers, and the model that joins them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import InitConfig, ModelConfig, SpecialTokens
from headway.config.networks.towers import TwoTowersConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import (
    Config,
    Family,
    Field,
    Head,
    Tensor,
    architecture_in,
    read_config,
    refuse_code,
    refuse_unknown,
    size_in,
    write_config,
)
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.vision import square

FIRST_EOS = 2
"""The end token in the config of the first files, which is none: `transformers` then takes the highest id."""


def _fields(width: int, heads: int, d_ff: int) -> tuple[Field, ...]:
    return (
        Field("hidden_size", "encoder.d_model", width),
        Field("num_hidden_layers", "encoder.n_layers", 12),
        Field("num_attention_heads", "encoder.n_heads", heads),
        Field("intermediate_size", "encoder.d_ff", d_ff),
        Field("hidden_act", "encoder.activation", "quick_gelu", ACTIVATIONS),
        Field("attention_dropout", "encoder.attention_dropout", 0.0),
    )


_QKV = "|".join(f"encoder.layers.{{i}}.self_attn.{part}_proj" for part in "qkv")
_BLOCK = (
    Tensor("encoder.blocks.{i}.attention.qkv", _QKV),
    Tensor("encoder.blocks.{i}.attention.out", "encoder.layers.{i}.self_attn.out_proj"),
    Tensor("encoder.blocks.{i}.residual1.norm", "encoder.layers.{i}.layer_norm1"),
    Tensor("encoder.blocks.{i}.residual2.norm", "encoder.layers.{i}.layer_norm2"),
    Tensor("encoder.blocks.{i}.ffn.up", "encoder.layers.{i}.mlp.fc1"),
    Tensor("encoder.blocks.{i}.ffn.down", "encoder.layers.{i}.mlp.fc2"),
)
_UNUSED = ("projection_dim", "dropout")
"""The projections belong to the model above; the first files name a dropout that does not exist."""
_POSITION_IDS = ("position_ids",)


def _read_vision(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    square(settings)


CLIP_VISION = Family(
    name="clip_vision_model",
    fields=(
        *_fields(768, 12, 3072),
        Field("layer_norm_eps", "encoder.norm_eps source.norm_eps", 1e-5),
        Field("image_size", "source.image", 224),
        Field("patch_size", "source.patch", 32),
        Field("num_channels", "source.channels", 3),
    ),
    fixed={"source.kind": "patches", "source.bias": False, "source.norm": True},
    tensors=(
        Tensor("source.first", "embeddings.class_embedding"),
        Tensor("source.positions", "embeddings.position_embedding.weight"),
        Tensor("source.project", "embeddings.patch_embedding", "patches"),
        Tensor("source.norm", "pre_layrnorm"),
        *_BLOCK,
        Tensor("encoder.norm", "post_layernorm"),
    ),
    heads={"CLIPVisionModel": Head(prefix="")},
    prefix="vision_model.",
    unused=_UNUSED,
    unneeded=_POSITION_IDS,
    on_read=_read_vision,
)
"""Here the last norm is for every token, not only for the class token: what a model is used for is the same."""

CLIP_TEXT = Family(
    name="clip_text_model",
    fields=(
        *_fields(512, 8, 2048),
        Field("layer_norm_eps", "encoder.norm_eps", 1e-5),
        Field("vocab_size", "source.vocab", 49408),
        Field("max_position_embeddings", "source.positions.length", 77),
    ),
    fixed={"encoder.causal": True, "source.kind": "tokens", "source.positions.kind": "learned"},
    tensors=(
        Tensor("source.table", "embeddings.token_embedding"),
        Tensor("source.positions.table", "embeddings.position_embedding"),
        *_BLOCK,
        Tensor("encoder.norm", "final_layer_norm"),
    ),
    heads={"CLIPTextModel": Head(prefix="")},
    prefix="text_model.",
    unused=_UNUSED,
    unneeded=_POSITION_IDS,
    special={"pad": 1, "bos": 49406, "eos": 49407},
)

CLIP = Family(
    name="clip",
    fields=(),
    fixed={},
    tensors=(),
    heads={
        "CLIPModel": Head(
            tensors=(
                Tensor("image_projection", "visual_projection"),
                Tensor("text_projection", "text_projection"),
                Tensor("logit_scale", "logit_scale", "scalar"),
            )
        )
    },
    prefix="",
    unused=(
        *("projection_dim", "logit_scale_init_value"),
        *("vision_config", "text_config", "vision_config_dict", "text_config_dict"),
    ),
    unneeded=_POSITION_IDS,
    towers={"image": CLIP_VISION, "text": CLIP_TEXT},
)
PARTS = {"image": "vision_config", "text": "text_config"}


def read_parts(
    family: Family, theirs: Mapping[str, Any], names: Collection[str]
) -> tuple[dict[str, ModelConfig], dict[str, Mapping[str, Any]]]:
    """The towers of a model, and the tables of config.json that describe them."""
    refuse_code(theirs)
    refuse_unknown(family, theirs)
    architecture_in(family, theirs)
    towers, tables = {}, {}
    for side, tower in family.towers.items():
        part = PARTS[side]
        old = theirs.get(f"{part}_dict")  # of older files: to `transformers` it replaces the other
        inner = (theirs.get(part) or {}) if old is None else old
        if not isinstance(inner, Mapping):
            raise ConfigError("C002", f"config.json: {part} = {short(inner)} should be a table")
        if (kind := inner.get("model_type", tower.name)) != tower.name:
            raise ConfigError("C022", f"config.json: {part}.model_type = {short(kind)}; headway knows {tower.name}")
        towers[side], tables[side] = read_config(tower, {**inner, "architectures": None}, names), inner
    return towers, tables


def read_clip(theirs: Mapping[str, Any], names: Collection[str] = ()) -> TwoTowersConfig:
    """The config.json of a CLIP model."""
    towers, _ = read_parts(CLIP, theirs, names)
    scale = theirs.get("logit_scale_init_value", 2.6592)
    if not isinstance(scale, int | float):
        raise ConfigError("C002", f"config.json: logit_scale_init_value = {short(scale)} should be a number")
    special = towers["text"].special
    return TwoTowersConfig(
        image=towers["image"],
        text=replace(towers["text"], special=SpecialTokens()),
        special=special,
        projection=size_in({"projection_dim": theirs.get("projection_dim", 512)}, "projection_dim"),
        logit_scale=float(scale),
        text_pool="highest" if special.eos == FIRST_EOS else "eos",
    )


def write_parts(family: Family, config: TwoTowersConfig) -> dict[str, Config]:
    """The tables of config.json that describe the towers, by the name of the tower."""
    both = {"image": config.image, "text": replace(config.text, special=config.special)}
    tables = {side: write_config(family.towers[side], tower) for side, tower in both.items()}
    for inner in tables.values():
        del inner["architectures"]
    return tables


def write_clip(config: TwoTowersConfig) -> Config:
    """The config.json of a CLIP model."""
    return {
        "model_type": CLIP.name,
        "architectures": [next(iter(CLIP.heads))],
        "projection_dim": config.projection,
        "logit_scale_init_value": config.logit_scale,
        **{
            PARTS[side]: {**inner, "projection_dim": config.projection}
            for side, inner in write_parts(CLIP, config).items()
        },
    }


def inference_only(config: TwoTowersConfig) -> TwoTowersConfig:
    """The config without what acts in training only, or before it: config.json has no names for it."""
    bias = None if config.logit_bias is None else 0.0
    return replace(config, image=_plain(config.image), text=_plain(config.text), logit_scale=0.0, logit_bias=bias)


def _plain(tower: ModelConfig) -> ModelConfig:
    assert tower.encoder is not None and tower.source is not None
    stack = replace(tower.encoder, dropout=0.0, activation_dropout=0.0, drop_path=0.0)
    return replace(tower, encoder=stack, source=replace(tower.source, dropout=0.0), init=InitConfig())
