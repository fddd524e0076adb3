"""Llama 2 and 3 (Touvron et al. 2023) and families that differ from them in a few fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Tensor, read_tied, switch, with_defaults
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.decoders.heads import (
    blocks,
    count_of,
    heads,
    layer_types,
    layers_of,
    read_tag_dropout,
    rope_of,
    set_layers,
    write_windows,
)
from headway.hub.tables.rope import ROPE_FIELDS, SHARE, read_rope, rope_settings, write_rope

ReadRope = Callable[[Config, Mapping[str, Any], Collection[str]], None]

LLAMA_FIXED = {
    "decoder.causal": True,
    "decoder.norm": "rmsnorm",
    "decoder.gated": True,
    "target.kind": "tokens",
    "target.positions.kind": "none",
}
NO_BIAS = {"decoder.qkv_bias": False, "decoder.out_bias": False, "decoder.ffn_bias": False}
ALL_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
UNUSED = ("tie_word_embeddings", *ROPE_FIELDS, "hidden_dropout")

FIRST_NORM, SECOND_NORM = (
    ("residual1.norm", "layers.{i}.input_layernorm"),
    ("residual2.norm", "layers.{i}.post_attention_layernorm"),
)
QKV = "|".join(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv")
ATTENTION = (("attention.qkv", QKV), ("attention.out", "layers.{i}.self_attn.o_proj"))
QK_NORMS = (
    ("attention.q_norm", "layers.{i}.self_attn.q_norm"),
    ("attention.k_norm", "layers.{i}.self_attn.k_norm"),
)
FEED_FORWARD = (
    ("ffn.up", "layers.{i}.mlp.gate_proj|layers.{i}.mlp.up_proj"),
    ("ffn.down", "layers.{i}.mlp.down_proj"),
)


def model_tensors(*pairs: Any) -> tuple[Tensor, ...]:
    """Tensors of a Llama-like base model, with these in its blocks."""
    return Tensor("target.table", "embed_tokens"), *blocks(*pairs), Tensor("decoder.norm", "norm")


LLAMA_TENSORS = model_tensors(FIRST_NORM, *ATTENTION, SECOND_NORM, *FEED_FORWARD)


def llama_fields(activation: str = "silu", without: tuple[str, ...] = (), **defaults: Any) -> tuple[Field, ...]:
    names = {activation: ACTIVATIONS[activation], **ACTIVATIONS}
    every = (
        Field("vocab_size", "target.vocab", 32000),
        Field("hidden_size", "decoder.d_model", 4096),
        Field("num_hidden_layers", "decoder.n_layers", 32),
        Field("num_attention_heads", "decoder.n_heads", 32),
        Field("num_key_value_heads", "decoder.n_kv_heads"),
        Field("head_dim", "decoder.d_head"),
        Field("intermediate_size", "decoder.d_ff", 11008),
        Field("hidden_act", "decoder.activation", activation, names),
        Field("rms_norm_eps", "decoder.norm_eps", 1e-6),
        Field("max_position_embeddings", "target.positions.length", 2048),
        Field("attention_bias", "decoder.qkv_bias decoder.out_bias", False),
        Field("mlp_bias", "decoder.ffn_bias", False),
        Field("attention_dropout", "decoder.attention_dropout", 0.0),
    )
    return with_defaults(tuple(entry for entry in every if entry.theirs not in without), **defaults)


def read_llama(*, tied: bool = False, theta: float = 10_000.0, partial: float | None = None) -> ReadRope:
    """Reads rotary positions, and whether the output matrix is tied; with what `transformers` assumes of them."""

    def read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
        read_rope(settings, theirs, theta=theta, partial=partial)
        read_tied(settings, theirs, tied)
        read_tag_dropout(settings, theirs)

    return read


def write_llama(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None
    stack = config.decoder
    if (rope := rope_of(stack)) is not None:
        write_rope(theirs, rope)
        if rope.partial != 1:
            theirs[SHARE] = rope.partial
    if stack.d_head is None:
        theirs.pop("head_dim", None)  # without it the file means the same, and the config read back is equal
    theirs["num_key_value_heads"] = stack.kv_heads
    theirs["tie_word_embeddings"] = config.lm is not None and config.lm.tied
    if config.tag:
        theirs["classifier_dropout"] = config.tag.dropout


def write_tied_llama(theirs: Config, config: ModelConfig) -> None:
    """For families whose models without an lm head say that it is tied."""
    write_llama(theirs, config)
    theirs["tie_word_embeddings"] = config.lm is None or config.lm.tied


LLAMA = Family(
    name="llama",
    fields=llama_fields(),
    fixed=LLAMA_FIXED,
    tensors=LLAMA_TENSORS,
    heads=heads("Llama", *ALL_HEADS, span="transformer."),
    prefix="model.",
    unused=UNUSED,
    unneeded=("rotary_emb.inv_freq",),
    special={"bos": 1, "eos": 2},
    on_read=read_llama(),
    on_write=write_llama,
)

MISTRAL = Family(
    name="mistral",
    fields=(
        *llama_fields(
            without=("attention_bias", "mlp_bias"),
            num_key_value_heads=8,
            intermediate_size=14336,
            max_position_embeddings=131072,
        ),
        Field("sliding_window", "decoder.window", 4096),
    ),
    fixed=LLAMA_FIXED | NO_BIAS,
    tensors=LLAMA_TENSORS,
    heads=heads("Mistral", "ForSequenceClassification", "ForTokenClassification"),
    prefix="model.",
    unused=UNUSED,
    unneeded=("rotary_emb.inv_freq",),
    special={"bos": 1, "eos": 2},
    on_read=read_llama(),
    on_write=write_llama,
)


def _read_phi3(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    for table in (theirs.get("rope_scaling"), theirs.get("rope_parameters")):
        kind = table.get("rope_type", table.get("type")) if isinstance(table, Mapping) else None
        if kind in ("longrope", "su", "yarn"):
            what = f"config.json: rope type {short(kind)} rotates a text by its length, so no cache would stay right"
            raise ConfigError("C022", what, "use a model of this family with a context of 4096 tokens, or Phi-4")
    read_llama(partial=1.0)(settings, theirs, names)


PHI3 = Family(
    name="phi3",
    fields=(
        *llama_fields(
            without=("head_dim", "attention_bias", "mlp_bias"),
            vocab_size=32064,
            hidden_size=3072,
            intermediate_size=8192,
            rms_norm_eps=1e-5,
            max_position_embeddings=4096,
        ),
        Field("sliding_window", "decoder.window"),
        Field("resid_pdrop", "decoder.dropout", 0.0),
    ),
    fixed=LLAMA_FIXED | NO_BIAS,
    tensors=model_tensors(
        FIRST_NORM,
        ("attention.qkv", "layers.{i}.self_attn.qkv_proj", "front"),
        ATTENTION[1],
        SECOND_NORM,
        ("ffn.up", "layers.{i}.mlp.gate_up_proj"),
        FEED_FORWARD[1],
    ),
    heads=heads("Phi3", "ForSequenceClassification", "ForTokenClassification"),
    prefix="model.",
    only={"attention_bias": False},
    unused=(*UNUSED, SHARE, "embd_pdrop", "original_max_position_embeddings"),
    special={"pad": 32000, "bos": 1, "eos": 32000},
    on_read=_read_phi3,
    on_write=write_llama,
)


def _read_granite(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_llama()(settings, theirs, names)
    divisor = theirs.get("logits_scaling", 1.0)
    if type(divisor) not in (int, float) or not 1e-6 <= divisor <= 1e6:
        raise ConfigError("C003", f"config.json: logits_scaling = {short(divisor)} should be a positive number")
    if "lm.tied" in settings:
        settings["lm.scale"] = 1 / divisor


def _write_granite(theirs: Config, config: ModelConfig) -> None:
    write_llama(theirs, config)
    theirs["logits_scaling"] = round(1 / config.lm.scale, 9) if config.lm else 1.0


GRANITE = Family(
    name="granite",
    fields=(
        *llama_fields(without=("head_dim",)),
        Field("attention_multiplier", "decoder.scale", 1.0),
        Field("residual_multiplier", "decoder.residual_scale", 1.0),
        Field("embedding_multiplier", "target.scale", 1.0),
    ),
    fixed=LLAMA_FIXED,
    tensors=LLAMA_TENSORS,
    heads=heads("Granite"),
    prefix="model.",
    unused=(*UNUSED, "logits_scaling"),
    special={"bos": 1, "eos": 2},
    on_read=_read_granite,
    on_write=_write_granite,
)

OLMO2 = Family(
    name="olmo2",
    fields=llama_fields(without=("head_dim", "mlp_bias"), vocab_size=50304, rms_norm_eps=1e-5),
    fixed={
        **LLAMA_FIXED,
        "decoder.ffn_bias": False,
        "decoder.norm_at": "branch",
        "decoder.qk_norm": "whole",
    },
    tensors=model_tensors(
        *ATTENTION,
        *QK_NORMS,
        ("residual1.norm", "layers.{i}.post_attention_layernorm"),
        *FEED_FORWARD,
        ("residual2.norm", "layers.{i}.post_feedforward_layernorm"),
    ),
    heads=heads("Olmo2", "ForSequenceClassification"),
    prefix="model.",
    unused=UNUSED,
    special={"pad": 1, "eos": 50279},
    on_read=read_llama(),
    on_write=write_llama,
)


def _read_smollm3(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_tied(settings, theirs, True)
    read_tag_dropout(settings, theirs)
    count, every = count_of(settings), theirs.get("no_rope_layer_interval", 4)
    if type(every) is not int or every < 1:
        raise ConfigError("C003", f"config.json: no_rope_layer_interval = {short(every)} should be at least 1")
    rotated = theirs.get("no_rope_layers")
    rotated = [int((layer + 1) % every != 0) for layer in range(count)] if rotated is None else rotated
    if not isinstance(rotated, list) or len(rotated) != count:
        raise ConfigError("C003", f"config.json: no_rope_layers = {short(rotated)} should have a number for each layer")
    window = theirs.get("sliding_window") if switch(theirs, "use_sliding_window", False) else None
    types = layer_types(
        settings, theirs, ["full_attention" if one or not window else "sliding_attention" for one in rotated]
    )
    rope = rope_settings(settings, theirs, theta=2e6)
    layers = zip(rotated, types, strict=True)
    set_layers(
        settings,
        [{"rope": rope if one else None, "window": window if t != "full_attention" else None} for one, t in layers],
    )


def _write_smollm3(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None
    write_tied_llama(theirs, config)
    write_windows(theirs, config.decoder)
    theirs["use_sliding_window"] = theirs["sliding_window"] is not None
    theirs["no_rope_layers"] = [int(layer.rope is not None) for layer in layers_of(config.decoder)]


SMOLLM3 = Family(
    name="smollm3",
    fields=llama_fields(
        without=("head_dim",),
        vocab_size=128256,
        hidden_size=2048,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=32768,
    ),
    fixed=LLAMA_FIXED,
    tensors=LLAMA_TENSORS,
    heads=heads("SmolLM3", *ALL_HEADS, span="transformer."),
    prefix="model.",
    unused=(
        *(*UNUSED, "no_rope_layers", "no_rope_layer_interval", "layer_types"),
        *("sliding_window", "use_sliding_window"),
    ),
    special={"pad": 128004, "bos": 128000, "eos": 128001},
    on_read=_read_smollm3,
    on_write=_write_smollm3,
)

STARCODER2 = Family(
    name="starcoder2",
    fields=(
        *llama_fields(
            "gelu_pytorch_tanh",
            without=("head_dim", "rms_norm_eps", "attention_bias", "mlp_bias"),
            vocab_size=49152,
            hidden_size=3072,
            num_hidden_layers=30,
            num_attention_heads=24,
            num_key_value_heads=2,
            intermediate_size=12288,
            max_position_embeddings=4096,
        ),
        Field("norm_epsilon", "decoder.norm_eps", 1e-5),
        Field("use_bias", "decoder.qkv_bias decoder.out_bias decoder.ffn_bias", True),
        Field("sliding_window", "decoder.window"),
        Field("residual_dropout", "decoder.dropout", 0.0),
        Field("embedding_dropout", "target.dropout", 0.0),
    ),
    fixed={"decoder.causal": True, "target.kind": "tokens", "target.positions.kind": "none"},
    tensors=model_tensors(
        FIRST_NORM,
        *ATTENTION,
        SECOND_NORM,
        ("ffn.up", "layers.{i}.mlp.c_fc"),
        ("ffn.down", "layers.{i}.mlp.c_proj"),
    ),
    heads=heads("Starcoder2", "ForSequenceClassification", "ForTokenClassification"),
    prefix="model.",
    unused=(*UNUSED, "norm_type", "mlp_type"),
    special={"bos": 50256, "eos": 50256},
    on_read=read_llama(tied=True),
    on_write=write_tied_llama,
)
