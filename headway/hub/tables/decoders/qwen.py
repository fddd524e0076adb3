"""Qwen2 (2024) and Qwen3 (2025)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, read_tied, switch
from headway.hub.tables.decoders.heads import (
    FULL,
    SLIDING,
    count_of,
    heads,
    layer_types,
    read_tag_dropout,
    set_layers,
    write_windows,
)
from headway.hub.tables.decoders.llama import (
    ALL_HEADS,
    ATTENTION,
    FEED_FORWARD,
    FIRST_NORM,
    LLAMA_FIXED,
    LLAMA_TENSORS,
    QK_NORMS,
    SECOND_NORM,
    UNUSED,
    llama_fields,
    model_tensors,
    write_llama,
)
from headway.hub.tables.rope import rope_settings

SIZES: dict[str, Any] = {"vocab_size": 151936, "max_position_embeddings": 32768}
_WINDOWS = ("sliding_window", "use_sliding_window", "max_window_layers", "layer_types")


def _read_qwen(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_tied(settings, theirs, False)
    read_tag_dropout(settings, theirs)
    window = theirs.get("sliding_window", 4096) if switch(theirs, "use_sliding_window", False) else None
    first = theirs.get("max_window_layers", 28)
    if type(first) is not int:
        raise ConfigError("C002", f"config.json: max_window_layers = {short(first)} should be a whole number")
    usual = [FULL if window is None or layer < first else SLIDING for layer in range(count_of(settings))]
    types, rope = layer_types(settings, theirs, usual), rope_settings(settings, theirs)
    set_layers(settings, [{"rope": rope, "window": window if t == SLIDING else None} for t in types])


def _write_qwen(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None
    write_llama(theirs, config)
    write_windows(theirs, config.decoder)
    theirs["use_sliding_window"] = theirs["sliding_window"] is not None


QWEN2 = Family(
    name="qwen2",
    fields=llama_fields(
        without=("head_dim", "attention_bias", "mlp_bias"), num_key_value_heads=32, intermediate_size=22016, **SIZES
    ),
    fixed={**LLAMA_FIXED, "decoder.out_bias": False, "decoder.ffn_bias": False},
    tensors=LLAMA_TENSORS,
    heads=heads("Qwen2", *ALL_HEADS, span="transformer."),
    prefix="model.",
    unused=(*UNUSED, *_WINDOWS, "use_mrope"),
    unneeded=("rotary_emb.inv_freq",),
    on_read=_read_qwen,
    on_write=_write_qwen,
)

QWEN3 = Family(
    name="qwen3",
    fields=llama_fields(without=("mlp_bias",), num_key_value_heads=32, head_dim=128, intermediate_size=22016, **SIZES),
    fixed={**LLAMA_FIXED, "decoder.ffn_bias": False, "decoder.qk_norm": "head"},
    tensors=model_tensors(FIRST_NORM, *ATTENTION, *QK_NORMS, SECOND_NORM, *FEED_FORWARD),
    heads=heads("Qwen3", *ALL_HEADS, span="transformer."),
    prefix="model.",
    unused=(*UNUSED, *_WINDOWS),
    on_read=_read_qwen,
    on_write=_write_qwen,
)
