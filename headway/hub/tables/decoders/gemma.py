"""Gemma (2024), Gemma 2 (2024) and the texts of Gemma 3 (2025)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, read_tied, size_in
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.decoders.heads import (
    FULL,
    SLIDING,
    count_of,
    heads,
    layer_types,
    read_tag_dropout,
    rope_of,
    set_layers,
    write_windows,
)
from headway.hub.tables.decoders.llama import (
    ATTENTION,
    FEED_FORWARD,
    FIRST_NORM,
    LLAMA_FIXED,
    LLAMA_TENSORS,
    QK_NORMS,
    UNUSED,
    llama_fields,
    model_tensors,
    read_llama,
    write_tied_llama,
)
from headway.hub.tables.rope import rope_settings, write_rope

_FIXED = {**LLAMA_FIXED, "decoder.norm_offset": 1.0, "decoder.ffn_bias": False}
_SPECIAL = {"pad": 0, "bos": 2, "eos": 1}


def _read_gemma(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_llama(tied=True)(settings, theirs, names)
    settings["target.scale"] = size_in(settings, "decoder.d_model") ** 0.5
    _gemma_activation(settings, theirs)


def _gemma_activation(settings: Config, theirs: Mapping[str, Any]) -> None:
    """The first files say gelu and mean gelu_tanh. hidden_activation was meant to replace hidden_act."""
    if theirs.get("hidden_act") == "gelu":
        settings["decoder.activation"] = "gelu_tanh"
    second = theirs.get("hidden_activation")
    if second is not None:
        chosen = Field("hidden_activation", "", None, ACTIVATIONS).read(theirs)
        if chosen != settings["decoder.activation"]:
            first = theirs.get("hidden_act", "gelu_pytorch_tanh")
            both = f"hidden_act = {short(first)} and hidden_activation = {short(second)}"
            raise ConfigError(
                "C004", f"config.json: {both} do not agree", "delete the one that the model was not trained with"
            )


def _write_gemma(theirs: Config, config: ModelConfig) -> None:
    write_tied_llama(theirs, config)
    theirs["hidden_activation"] = theirs["hidden_act"]


GEMMA = Family(
    name="gemma",
    fields=llama_fields(
        "gelu_pytorch_tanh",
        without=("mlp_bias",),
        vocab_size=256000,
        hidden_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        intermediate_size=24576,
        max_position_embeddings=8192,
    ),
    fixed=_FIXED,
    tensors=LLAMA_TENSORS,
    heads=heads("Gemma", "ForSequenceClassification", "ForTokenClassification"),
    prefix="model.",
    only={"use_bidirectional_attention": False},
    unused=(*UNUSED, "hidden_activation"),
    unneeded=("rotary_emb.inv_freq",),
    special=_SPECIAL,
    on_read=_read_gemma,
    on_write=_write_gemma,
)

_SANDWICH = (
    FIRST_NORM,
    *ATTENTION,
    ("residual1.after", "layers.{i}.post_attention_layernorm"),
    ("residual2.norm", "layers.{i}.pre_feedforward_layernorm"),
    *FEED_FORWARD,
    ("residual2.after", "layers.{i}.post_feedforward_layernorm"),
)
_WINDOWED = (*UNUSED, "sliding_window", "layer_types", "query_pre_attn_scalar", "final_logit_softcapping")
_BARE = ("cache_implementation",)  # how `transformers` holds keys and values


def _windowed_fields(**defaults: Any) -> tuple[Field, ...]:
    names = {"gelu_pytorch_tanh": "gelu_tanh", **ACTIVATIONS}
    return (
        *llama_fields(
            without=("hidden_act", "mlp_bias"),
            hidden_size=2304,
            num_hidden_layers=26,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=256,
            intermediate_size=9216,
            **defaults,
        ),
        Field("hidden_activation", "decoder.activation", "gelu_pytorch_tanh", names),
    )


def _read_windowed(settings: Config, theirs: Mapping[str, Any], cap: float | None) -> None:
    """What Gemma 2 and 3 share."""
    settings["target.scale"] = size_in(settings, "decoder.d_model") ** 0.5
    width = theirs.get("query_pre_attn_scalar", 256)
    if type(width) not in (int, float) or not 0 < width <= 1e6:
        raise ConfigError("C003", f"config.json: query_pre_attn_scalar = {short(width)} should be a positive number")
    settings["decoder.scale"] = width**-0.5
    read_tied(settings, theirs, True)
    read_tag_dropout(settings, theirs)
    if "lm.tied" in settings:
        settings["lm.softcap"] = theirs.get("final_logit_softcapping", cap)


def _write_windowed(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None
    write_tied_llama(theirs, config)
    write_windows(theirs, config.decoder)
    theirs["sliding_window"] = theirs["sliding_window"] or 4096  # a number is asked for even if no layer has it
    stack = config.decoder
    theirs["query_pre_attn_scalar"] = stack.head_width if stack.scale is None else round(stack.scale**-2)
    theirs["final_logit_softcapping"] = config.lm.softcap if config.lm else None


def _read_gemma2(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    _read_windowed(settings, theirs, 30.0)
    window, rope = theirs.get("sliding_window", 4096), rope_settings(settings, theirs)
    usual = [FULL if layer % 2 else SLIDING for layer in range(count_of(settings))]
    types = layer_types(settings, theirs, usual)
    set_layers(settings, [{"rope": rope, "window": window if t == SLIDING else None} for t in types])


GEMMA2 = Family(
    name="gemma2",
    fields=(
        *_windowed_fields(vocab_size=256000, max_position_embeddings=8192),
        Field("attn_logit_softcapping", "decoder.softcap", 50.0),
    ),
    fixed={**_FIXED, "decoder.norm_at": "sandwich"},
    tensors=model_tensors(*_SANDWICH),
    heads=heads("Gemma2", "ForSequenceClassification", "ForTokenClassification"),
    prefix="model.",
    only={"use_bidirectional_attention": False},
    unused=(*_WINDOWED, *_BARE, "hidden_act"),
    special=_SPECIAL,
    on_read=_read_gemma2,
    on_write=_write_windowed,
)


def _read_gemma3(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    _read_windowed(settings, theirs, None)
    ropes = _gemma3_ropes(settings, theirs)
    every = theirs.get("sliding_window_pattern", theirs.get("_sliding_window_pattern", 6))
    if type(every) is not int or every < 1:
        raise ConfigError("C003", f"config.json: sliding_window_pattern = {short(every)} should be at least 1")
    usual = [SLIDING if (layer + 1) % every else FULL for layer in range(count_of(settings))]
    windows = {SLIDING: theirs.get("sliding_window", 4096), FULL: None}
    types = layer_types(settings, theirs, usual)
    set_layers(settings, [{"rope": ropes[t], "window": windows[t]} for t in types])


def _gemma3_ropes(settings: Config, theirs: Mapping[str, Any]) -> dict[str, Config]:
    """The rotary positions of both kinds of layers: in rope_parameters, or in fields of older versions."""
    both = theirs.get("rope_parameters")
    found = {}
    for kind, theta, old in ((FULL, 1e6, "rope_theta"), (SLIDING, 1e4, "rope_local_base_freq")):
        own = {"rope_theta": theirs[old]} if theirs.get(old) is not None else {}
        if kind == FULL:
            own["rope_scaling"] = theirs.get("rope_scaling")
        if isinstance(both, Mapping):
            own["rope_parameters"] = both.get(kind)
        found[kind] = rope_settings(settings, own, theta=theta)
    return found


def _write_gemma3(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None
    _write_windowed(theirs, config)
    theirs.pop("rope_theta", None)
    if (rope := rope_of(config.decoder, windowed=False)) is not None:
        write_rope(theirs, rope)
    if (local := rope_of(config.decoder, windowed=True)) is not None:
        theirs["rope_local_base_freq"] = local.theta


GEMMA3 = Family(
    name="gemma3_text",
    fields=_windowed_fields(vocab_size=262_208, max_position_embeddings=131_072),
    fixed={**_FIXED, "decoder.norm_at": "sandwich", "decoder.qk_norm": "head"},
    tensors=model_tensors(*_SANDWICH, *QK_NORMS),
    heads={
        **{name: head for name, head in heads("Gemma3").items() if name == "Gemma3ForCausalLM"},
        **{
            f"Gemma3Text{name.removeprefix('Gemma3')}": head
            for name, head in heads("Gemma3", "ForSequenceClassification").items()
            if name != "Gemma3ForCausalLM"
        },
    },
    prefix="model.",
    only={"use_bidirectional_attention": False, "attn_logit_softcapping": None},
    unused=(*_WINDOWED, *_BARE, "rope_local_base_freq", "sliding_window_pattern", "_sliding_window_pattern"),
    special=_SPECIAL,
    on_read=_read_gemma3,
    on_write=_write_gemma3,
)
