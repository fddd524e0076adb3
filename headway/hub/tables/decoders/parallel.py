"""Decoders whose branches may read one input: GPT-NeoX (Black et al. 2022), Falcon (2023), StableLM, Cohere (2024)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, read_tied, size_in, span_head, switch
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.decoders.gpt import write_common
from headway.hub.tables.decoders.heads import SCORE, blocks, heads, lm_head, read_tag_dropout, tag_head
from headway.hub.tables.decoders.llama import (
    ATTENTION,
    FEED_FORWARD,
    FIRST_NORM,
    QKV,
    SECOND_NORM,
    UNUSED,
    llama_fields,
    model_tensors,
    read_llama,
    write_llama,
    write_tied_llama,
)
from headway.hub.tables.rope import ROPE_FIELDS, SHARE, read_rope, write_rope

_FIXED = {"decoder.causal": True, "target.kind": "tokens", "target.positions.kind": "none"}


def _read_neox(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    old = {"rotary_emb_base": "rope_theta", "rotary_pct": SHARE}
    theirs = {**theirs, **{new: theirs[name] for name, new in old.items() if name in theirs}}
    read_rope(settings, theirs, partial=0.25)
    read_tied(settings, theirs, False)
    if "tag.labels" in settings:
        settings["tag.dropout"] = theirs.get("classifier_dropout", 0.1)


def _write_neox(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None and config.decoder.rope is not None
    write_common(theirs, config)
    write_rope(theirs, config.decoder.rope)
    theirs["rotary_emb_base"], theirs["rotary_pct"] = theirs.pop("rope_theta"), config.decoder.rope.partial
    theirs["tie_word_embeddings"] = config.lm is not None and config.lm.tied


GPT_NEOX = Family(
    name="gpt_neox",
    fields=(
        Field("vocab_size", "target.vocab", 50432),
        Field("hidden_size", "decoder.d_model", 6144),
        Field("num_hidden_layers", "decoder.n_layers", 44),
        Field("num_attention_heads", "decoder.n_heads", 64),
        Field("intermediate_size", "decoder.d_ff", 24576),
        Field("hidden_act", "decoder.activation", "gelu", ACTIVATIONS),
        Field("layer_norm_eps", "decoder.norm_eps", 1e-5),
        Field("max_position_embeddings", "target.positions.length", 2048),
        Field("attention_bias", "decoder.qkv_bias decoder.out_bias", True),
        Field("use_parallel_residual", "decoder.parallel", True, {True: "two", False: "none"}),
        Field("attention_dropout", "decoder.attention_dropout", 0.0),
        Field("hidden_dropout", "decoder.dropout target.dropout", 0.0),
    ),
    fixed=_FIXED,
    tensors=(
        Tensor("target.table", "embed_in"),
        *blocks(
            FIRST_NORM,
            ("attention.qkv", "layers.{i}.attention.query_key_value", "grouped"),
            ("attention.out", "layers.{i}.attention.dense"),
            SECOND_NORM,
            ("ffn.up", "layers.{i}.mlp.dense_h_to_4h"),
            ("ffn.down", "layers.{i}.mlp.dense_4h_to_h"),
        ),
        Tensor("decoder.norm", "final_layer_norm"),
    ),
    heads={
        "GPTNeoXForCausalLM": lm_head("embed_in", "embed_out"),
        "GPTNeoXModel": Head(prefix=""),
        "GPTNeoXForSequenceClassification": SCORE,
        "GPTNeoXForTokenClassification": tag_head("classifier"),
        "GPTNeoXForQuestionAnswering": span_head(),
    },
    prefix="gpt_neox.",
    unused=("tie_word_embeddings", *ROPE_FIELDS, SHARE, "rotary_emb_base", "rotary_pct", "is_decoder"),
    unneeded=("attention.bias", "attention.masked_bias", "rotary_emb.inv_freq"),
    special={"bos": 0, "eos": 2},
    on_read=_read_neox,
    on_write=_write_neox,
)


def _read_falcon(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    new, parallel = switch(theirs, "new_decoder_architecture", False), switch(theirs, "parallel_attn", True)
    norms = theirs.get("num_ln_in_parallel_attn")
    norms = (2 if new else 1) if norms is None else norms
    if norms not in (1, 2) or (norms == 2 and not new) or (new and not parallel):
        what = f"num_ln_in_parallel_attn = {short(norms)}, parallel_attn = {parallel}, new_decoder_architecture = {new}"
        raise ConfigError("C022", f"config.json: {what}", "headway knows the combinations of published models")
    settings["decoder.parallel"] = ("one", "two")[norms - 1] if parallel else "none"
    groups = 1 if switch(theirs, "multi_query", True) else settings["decoder.n_heads"]
    settings["decoder.n_kv_heads"] = theirs.get("num_kv_heads") if new else groups
    if settings["decoder.d_ff"] is None:
        settings["decoder.d_ff"] = 4 * size_in(settings, "decoder.d_model")
    read_rope(settings, theirs)
    read_tied(settings, theirs, True)
    read_tag_dropout(settings, theirs, usual=0.0)


def _write_falcon(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None and config.decoder.rope is not None
    stack = config.decoder
    write_common(theirs, config)
    write_rope(theirs, config.decoder.rope)
    new = stack.parallel == "two" or stack.kv_heads not in (1, stack.n_heads)
    theirs |= {"new_decoder_architecture": new, "parallel_attn": stack.parallel != "none", "alibi": False}
    theirs |= {"num_ln_in_parallel_attn": 2 if stack.parallel == "two" else 1, "num_kv_heads": stack.n_kv_heads}
    theirs["multi_query"] = not new and stack.kv_heads == 1


FALCON = Family(
    name="falcon",
    fields=(
        Field("vocab_size", "target.vocab", 65024),
        Field("hidden_size", "decoder.d_model", 4544),
        Field("num_hidden_layers", "decoder.n_layers", 32),
        Field("num_attention_heads", "decoder.n_heads", 71),
        Field("ffn_hidden_size", "decoder.d_ff"),
        Field("activation", "decoder.activation", "gelu", ACTIVATIONS),
        Field("layer_norm_epsilon", "decoder.norm_eps", 1e-5),
        Field("max_position_embeddings", "target.positions.length", 2048),
        Field("bias", "decoder.qkv_bias decoder.out_bias decoder.ffn_bias", False),
        Field("attention_dropout", "decoder.attention_dropout", 0.0),
        Field("hidden_dropout", "decoder.dropout", 0.0),
    ),
    fixed=_FIXED,
    tensors=(
        Tensor("target.table", "word_embeddings"),
        *blocks(
            ("residual1.norm", "h.{i}.input_layernorm", "", "!decoder.parallel=two"),
            ("residual1.norm", "h.{i}.ln_attn", "", "decoder.parallel=two"),
            ("residual2.norm", "h.{i}.post_attention_layernorm", "", "!decoder.parallel=two"),
            ("residual2.norm", "h.{i}.ln_mlp", "", "decoder.parallel=two"),
            ("attention.qkv", "h.{i}.self_attention.query_key_value", "grouped"),
            ("attention.out", "h.{i}.self_attention.dense"),
            ("ffn.up", "h.{i}.mlp.dense_h_to_4h"),
            ("ffn.down", "h.{i}.mlp.dense_4h_to_h"),
        ),
        Tensor("decoder.norm", "ln_f"),
    ),
    heads={
        "FalconForCausalLM": lm_head("word_embeddings"),
        "FalconModel": Head(prefix=""),
        "FalconForSequenceClassification": SCORE,
        "FalconForTokenClassification": tag_head("classifier"),
        "FalconForQuestionAnswering": span_head("transformer."),
    },
    prefix="transformer.",
    only={"alibi": False, "apply_residual_connection_post_layernorm": False},
    unused=(
        *("tie_word_embeddings", *ROPE_FIELDS, "new_decoder_architecture", "parallel_attn", "multi_query"),
        *("num_kv_heads", "num_ln_in_parallel_attn"),
    ),
    special={"bos": 11, "eos": 11},
    on_read=_read_falcon,
    on_write=_write_falcon,
)


def _read_stablelm(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_llama(partial=0.25)(settings, theirs, names)
    read_tag_dropout(settings, theirs, usual=0.0)


STABLELM = Family(
    name="stablelm",
    fields=(
        *llama_fields(
            without=("head_dim", "rms_norm_eps", "attention_bias", "mlp_bias"),
            vocab_size=50304,
            hidden_size=2560,
            num_key_value_heads=32,
            intermediate_size=6912,
            max_position_embeddings=4096,
        ),
        Field("layer_norm_eps", "decoder.norm_eps", 1e-5),
        Field("use_qkv_bias", "decoder.qkv_bias", False),
        Field("use_parallel_residual", "decoder.parallel", False, {True: "one", False: "none"}),
    ),
    fixed={**_FIXED, "decoder.gated": True, "decoder.out_bias": False, "decoder.ffn_bias": False},
    tensors=model_tensors(FIRST_NORM, ("attention.qkv", QKV, "front"), ATTENTION[1], SECOND_NORM, *FEED_FORWARD),
    heads=heads("StableLm", "ForSequenceClassification", "ForTokenClassification"),
    prefix="model.",
    only={"qk_layernorm": False},
    unused=(*UNUSED, SHARE),
    special={"bos": 0, "eos": 0},
    on_read=_read_stablelm,
    on_write=write_llama,
)


def _read_cohere(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_llama(tied=True, theta=500_000.0)(settings, theirs, names)
    if "lm.tied" in settings:
        settings["lm.scale"] = theirs.get("logit_scale", 0.0625)


def _write_cohere(theirs: Config, config: ModelConfig) -> None:
    write_tied_llama(theirs, config)
    theirs["logit_scale"] = config.lm.scale if config.lm else 0.0625


COHERE = Family(
    name="cohere",
    fields=(
        *llama_fields(
            without=("head_dim", "rms_norm_eps", "mlp_bias"),
            vocab_size=256000,
            hidden_size=8192,
            num_hidden_layers=40,
            num_attention_heads=64,
            intermediate_size=22528,
            max_position_embeddings=8192,
        ),
        Field("layer_norm_eps", "decoder.norm_eps", 1e-5),
    ),
    fixed={
        **_FIXED,
        **{"decoder.gated": True, "decoder.ffn_bias": False, "decoder.norm_bias": False, "decoder.parallel": "one"},
    },
    tensors=model_tensors(FIRST_NORM, ("attention.qkv", QKV, "pairs"), ATTENTION[1], *FEED_FORWARD),
    heads=heads("Cohere"),
    prefix="model.",
    only={"use_qk_norm": False},
    unused=(*UNUSED, "logit_scale"),
    special={"pad": 0, "bos": 5, "eos": 255001},
    on_read=_read_cohere,
    on_write=_write_cohere,
)
