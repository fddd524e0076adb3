"""GPT-2 (Radford et al. 2019) and others without rotary positions: OPT (Zhang et al. 2022), BLOOM (2022)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, read_tied, size_in, span_head, switch
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.decoders.heads import SCORE, blocks, lm_head, read_tag_dropout, tag_head


def write_common(theirs: Config, config: ModelConfig) -> None:
    """What all decoders write alike."""
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True
    if config.tag:
        theirs["classifier_dropout"] = config.tag.dropout


def _read_gpt2(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if settings["decoder.d_ff"] is None and isinstance(settings["decoder.d_model"], int):
        settings["decoder.d_ff"] = 4 * settings["decoder.d_model"]
    read_tied(settings, theirs, True)
    read_tag_dropout(settings, theirs)


GPT2 = Family(
    name="gpt2",
    fields=(
        Field("vocab_size", "target.vocab", 50257),
        Field("n_embd", "decoder.d_model", 768),
        Field("n_layer", "decoder.n_layers", 12),
        Field("n_head", "decoder.n_heads", 12),
        Field("n_inner", "decoder.d_ff"),
        Field("n_positions", "target.positions.length", 1024),
        Field("activation_function", "decoder.activation", "gelu_new", {"gelu_new": "gelu_tanh", **ACTIVATIONS}),
        Field("layer_norm_epsilon", "decoder.norm_eps", 1e-5),
        Field("embd_pdrop", "target.dropout", 0.1),
        Field("attn_pdrop", "decoder.attention_dropout", 0.1),
        Field("resid_pdrop", "decoder.dropout", 0.1),
    ),
    fixed={
        "decoder.causal": True,
        "target.kind": "tokens",
        "target.positions.kind": "learned",
        "init.kind": "residual",
    },
    tensors=(
        Tensor("target.table", "wte"),
        Tensor("target.positions.table", "wpe"),
        *blocks(
            ("residual1.norm", "h.{i}.ln_1"),
            ("attention.qkv", "h.{i}.attn.c_attn", "transpose"),
            ("attention.out", "h.{i}.attn.c_proj", "transpose"),
            ("residual2.norm", "h.{i}.ln_2"),
            ("ffn.up", "h.{i}.mlp.c_fc", "transpose"),
            ("ffn.down", "h.{i}.mlp.c_proj", "transpose"),
        ),
        Tensor("decoder.norm", "ln_f"),
    ),
    heads={
        "GPT2LMHeadModel": lm_head("wte"),
        "GPT2Model": Head(prefix=""),
        "GPT2ForSequenceClassification": SCORE,
        "GPT2ForTokenClassification": tag_head("classifier"),
        "GPT2ForQuestionAnswering": span_head("transformer."),
    },
    prefix="transformer.",
    aliases={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    only={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    unused=("tie_word_embeddings", "hidden_dropout"),
    unneeded=("attn.bias", "attn.masked_bias"),
    special={"bos": 50256, "eos": 50256},
    on_read=_read_gpt2,
    on_write=write_common,
)


def _read_opt(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    before = switch(theirs, "do_layer_norm_before", True)
    settings["decoder.norm_at"] = "pre" if before else "post"
    settings["decoder.final_norm"] = before and not switch(theirs, "_remove_final_layer_norm", False)
    narrow = theirs.get("word_embed_proj_dim")
    if narrow not in (None, settings["decoder.d_model"]):
        settings |= {"target.width": narrow, "target.project": "first"}
        if "lm.tied" not in settings:
            what = f"config.json: word_embed_proj_dim = {narrow}; headway supports it with a language model's head only"
            raise ConfigError(
                "C022", what, "its hidden states are mapped to that width, and other heads read them there"
            )
    read_tied(settings, theirs, True)


def _write_opt(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None and config.target is not None
    stack = config.decoder
    write_common(theirs, config)
    theirs["do_layer_norm_before"] = stack.norm_at == "pre"
    theirs["_remove_final_layer_norm"] = stack.norm_at == "pre" and not stack.final_norm
    theirs["word_embed_proj_dim"] = config.target.width or stack.d_model


OPT = Family(
    name="opt",
    fields=(
        Field("vocab_size", "target.vocab", 50272),
        Field("hidden_size", "decoder.d_model", 768),
        Field("num_hidden_layers", "decoder.n_layers", 12),
        Field("num_attention_heads", "decoder.n_heads", 12),
        Field("ffn_dim", "decoder.d_ff", 3072),
        Field("max_position_embeddings", "target.positions.length", 2048),
        Field("activation_function", "decoder.activation", "relu", ACTIVATIONS),
        Field("enable_bias", "decoder.qkv_bias decoder.out_bias decoder.ffn_bias", True),
        Field("attention_dropout", "decoder.attention_dropout", 0.0),
        Field("dropout", "decoder.dropout", 0.1),
    ),
    fixed={
        "decoder.causal": True,
        "target.kind": "tokens",
        "target.positions.kind": "learned",
        "target.positions.offset": 2,
    },
    tensors=(
        Tensor("target.table", "decoder.embed_tokens"),
        Tensor("target.project", "decoder.project_in"),
        Tensor("target.positions.table", "decoder.embed_positions"),
        *blocks(
            ("residual1.norm", "decoder.layers.{i}.self_attn_layer_norm"),
            ("attention.qkv", "|".join(f"decoder.layers.{{i}}.self_attn.{part}_proj" for part in "qkv")),
            ("attention.out", "decoder.layers.{i}.self_attn.out_proj"),
            ("residual2.norm", "decoder.layers.{i}.final_layer_norm"),
            ("ffn.up", "decoder.layers.{i}.fc1"),
            ("ffn.down", "decoder.layers.{i}.fc2"),
        ),
        Tensor("decoder.norm", "decoder.final_layer_norm"),
    ),
    heads={
        "OPTForCausalLM": lm_head(
            "decoder.embed_tokens", "lm_head", Tensor("lm.project", "{prefix}decoder.project_out")
        ),
        "OPTModel": Head(prefix=""),
        "OPTForSequenceClassification": SCORE,
        "OPTForQuestionAnswering": span_head(),
    },
    prefix="model.",
    only={"layer_norm_elementwise_affine": True},
    unused=("tie_word_embeddings", "do_layer_norm_before", "_remove_final_layer_norm", "word_embed_proj_dim"),
    special={"pad": 1, "bos": 2, "eos": 2},
    on_read=_read_opt,
    on_write=_write_opt,
)


def _read_bloom(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if theirs.get("n_embed") is not None:  # the older name of hidden_size
        settings["decoder.d_model"] = theirs["n_embed"]
    settings["decoder.d_ff"] = 4 * size_in(settings, "decoder.d_model")
    read_tied(settings, theirs, True)
    read_tag_dropout(settings, theirs, usual=0.0)


BLOOM = Family(
    name="bloom",
    fields=(
        Field("vocab_size", "target.vocab", 250880),
        Field("hidden_size", "decoder.d_model", 64),
        Field("n_layer", "decoder.n_layers", 2),
        Field("n_head", "decoder.n_heads", 8),
        Field("layer_norm_epsilon", "decoder.norm_eps target.norm_eps", 1e-5),
        Field("attention_dropout", "decoder.attention_dropout", 0.0),
        Field("hidden_dropout", "decoder.dropout", 0.0),
    ),
    fixed={
        "decoder.causal": True,
        "decoder.alibi": True,
        "decoder.activation": "gelu_tanh",
        "target.kind": "tokens",
        "target.positions.kind": "none",
        "target.norm": True,
    },
    tensors=(
        Tensor("target.table", "word_embeddings"),
        Tensor("target.norm", "word_embeddings_layernorm"),
        *blocks(
            ("residual1.norm", "h.{i}.input_layernorm"),
            ("attention.qkv", "h.{i}.self_attention.query_key_value", "grouped"),
            ("attention.out", "h.{i}.self_attention.dense"),
            ("residual2.norm", "h.{i}.post_attention_layernorm"),
            ("ffn.up", "h.{i}.mlp.dense_h_to_4h"),
            ("ffn.down", "h.{i}.mlp.dense_4h_to_h"),
        ),
        Tensor("decoder.norm", "ln_f"),
    ),
    heads={
        "BloomForCausalLM": lm_head("word_embeddings"),
        "BloomModel": Head(prefix=""),
        "BloomForSequenceClassification": SCORE,
        "BloomForTokenClassification": tag_head("classifier"),
        "BloomForQuestionAnswering": span_head("transformer."),
    },
    prefix="transformer.",
    aliases={"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    only={"apply_residual_connection_post_layernorm": False, "slow_but_exact": False},
    unused=(
        *("tie_word_embeddings", "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion"),
        *("n_embed", "n_inner", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv"),
    ),
    special={"bos": 1, "eos": 2},
    on_read=_read_bloom,
    on_write=write_common,
)
