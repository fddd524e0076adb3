"""Decoders: GPT-2 (Radford et al. 2019), Llama 2 and 3 (Touvron et al. 2023), Gemma (2024)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config import ModelConfig
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in
from headway.hub.tables.bert import ACTIVATIONS
from headway.settings import short

_LM = Head({"lm.tied": True}, (Tensor("lm.output.weight", "lm_head.weight"),))
_BARE = Head(prefix="")
_SCORE = Head(
    {"classify.labels": 2, "classify.pool": "last", "classify.bias": False},
    (Tensor("classify.output", "score"),),
    labels="classify.labels",
)
_SPAN = Head({"span.ffn": False}, (Tensor("span.output", "qa_outputs"),), prefix="transformer.")


def _tag(output: str) -> Head:
    return Head({"tag.labels": 2}, (Tensor("tag.output", output),), labels="tag.labels")


def _blocks(*pairs: tuple[str, str, str]) -> tuple[Tensor, ...]:
    return tuple(Tensor(f"decoder.blocks.{{i}}.{ours}", theirs, op) for ours, theirs, op in pairs)


def _gpt2_adjust(flat: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if flat["decoder.d_ff"] is None and isinstance(flat["decoder.d_model"], int):
        flat["decoder.d_ff"] = 4 * flat["decoder.d_model"]
    if "lm.tied" in flat:
        flat["lm.tied"] = theirs.get("tie_word_embeddings", True) is not False
    if "tag.labels" in flat:
        hidden = theirs.get("hidden_dropout")
        dropout = theirs.get("classifier_dropout")
        flat["tag.dropout"] = dropout if dropout is not None else hidden if hidden is not None else 0.1


def _gpt2_explain(theirs: Config, config: ModelConfig) -> None:
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True
    if config.tag:
        theirs["classifier_dropout"] = config.tag.dropout


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
        *_blocks(
            ("residual1.norm", "h.{i}.ln_1", ""),
            ("attention.qkv", "h.{i}.attn.c_attn", "transpose"),
            ("attention.out", "h.{i}.attn.c_proj", "transpose"),
            ("residual2.norm", "h.{i}.ln_2", ""),
            ("ffn.up", "h.{i}.mlp.c_fc", "transpose"),
            ("ffn.down", "h.{i}.mlp.c_proj", "transpose"),
        ),
        Tensor("decoder.norm", "ln_f"),
    ),
    heads={
        "GPT2LMHeadModel": _LM,
        "GPT2Model": _BARE,
        "GPT2ForSequenceClassification": _SCORE,
        "GPT2ForTokenClassification": _tag("classifier"),
        "GPT2ForQuestionAnswering": _SPAN,
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
    spare=("attn.bias", "attn.masked_bias", "lm_head.weight"),
    adjust=_gpt2_adjust,
    explain=_gpt2_explain,
)

_LLAMA_TENSORS = (
    Tensor("target.table", "embed_tokens"),
    *_blocks(
        ("residual1.norm", "layers.{i}.input_layernorm", ""),
        (
            "attention.qkv",
            "layers.{i}.self_attn.q_proj|layers.{i}.self_attn.k_proj|layers.{i}.self_attn.v_proj",
            "",
        ),
        ("attention.out", "layers.{i}.self_attn.o_proj", ""),
        ("residual2.norm", "layers.{i}.post_attention_layernorm", ""),
        ("ffn.up", "layers.{i}.mlp.gate_proj|layers.{i}.mlp.up_proj", ""),
        ("ffn.down", "layers.{i}.mlp.down_proj", ""),
    ),
    Tensor("decoder.norm", "norm"),
)

_LLAMA_FIXED = {
    "decoder.causal": True,
    "decoder.norm": "rmsnorm",
    "decoder.gated": True,
    "target.kind": "tokens",
    "target.positions.kind": "none",
}


def _llama_fields(activation: str, default: str, kv: int | None) -> tuple[Field, ...]:
    names = {default: "silu" if default == "silu" else "gelu_tanh", **ACTIVATIONS}
    return (
        Field("vocab_size", "target.vocab", 32000),
        Field("hidden_size", "decoder.d_model", 4096),
        Field("num_hidden_layers", "decoder.n_layers", 32),
        Field("num_attention_heads", "decoder.n_heads", 32),
        Field("num_key_value_heads", "decoder.n_kv_heads", kv),
        Field("head_dim", "decoder.d_head"),
        Field("intermediate_size", "decoder.d_ff", 11008),
        Field(activation, "decoder.activation", default, names),
        Field("rms_norm_eps", "decoder.norm_eps", 1e-6),
        Field("max_position_embeddings", "target.positions.length", 2048),
        Field("attention_bias", "decoder.qkv_bias decoder.out_bias", False),
        Field("mlp_bias", "decoder.ffn_bias", False),
        Field("attention_dropout", "decoder.attention_dropout", 0.0),
    )


def _rope(flat: Config, theirs: Mapping[str, Any]) -> None:
    """Two spellings: rope_theta with rope_scaling, and rope_parameters that holds both."""
    new = theirs.get("rope_parameters")
    old = theirs.get("rope_scaling")
    rope: Mapping[str, Any] = new if isinstance(new, Mapping) else old if isinstance(old, Mapping) else {}
    flat["decoder.rope.theta"] = rope.get("rope_theta", theirs.get("rope_theta", 10_000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return
    if kind not in ("linear", "llama3"):
        raise ConfigError("C022", f"config.json: rope type {short(kind)}; headway knows default, linear, llama3")
    flat["decoder.rope.scaling"] = kind
    names = {"factor": "factor"}
    if kind == "llama3":
        names |= {
            "low_freq_factor": "low_factor",
            "high_freq_factor": "high_factor",
            "original_max_position_embeddings": "original_length",
        }
    for their, our in names.items():
        if their not in rope:
            raise ConfigError("C004", f'config.json: rope type {kind} needs "{their}"')
        flat[f"decoder.rope.{our}"] = rope[their]


def _llama_adjust(flat: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    _rope(flat, theirs)
    if "lm.tied" in flat:
        flat["lm.tied"] = theirs.get("tie_word_embeddings", False) is True
    if "tag.labels" in flat:
        dropout = theirs.get("classifier_dropout", theirs.get("hidden_dropout"))
        flat["tag.dropout"] = 0.1 if dropout is None else dropout


def _llama_explain(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None and config.decoder.rope is not None
    stack, rope = config.decoder, config.decoder.rope
    theirs["rope_theta"] = rope.theta  # as read before version 5 of transformers, and still understood there
    if rope.scaling == "linear":
        theirs["rope_scaling"] = {"rope_type": "linear", "factor": rope.factor}
    elif rope.scaling == "llama3":
        theirs["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low_factor,
            "high_freq_factor": rope.high_factor,
            "original_max_position_embeddings": rope.original_length,
        }
    if stack.d_head is None:
        theirs.pop("head_dim", None)  # left out it means the same, and is read back as it was
    theirs["num_key_value_heads"] = stack.kv_heads
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else False
    if config.tag:
        theirs["classifier_dropout"] = config.tag.dropout


_ROPE_FIELDS = ("tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "hidden_dropout")

LLAMA = Family(
    name="llama",
    fields=_llama_fields("hidden_act", "silu", None),
    fixed=_LLAMA_FIXED,
    tensors=_LLAMA_TENSORS,
    heads={
        "LlamaForCausalLM": _LM,
        "LlamaModel": _BARE,
        "LlamaForSequenceClassification": _SCORE,
        "LlamaForTokenClassification": _tag("score"),
        "LlamaForQuestionAnswering": _SPAN,
    },
    prefix="model.",
    unused=_ROPE_FIELDS,
    spare=("rotary_emb.inv_freq", "lm_head.weight"),
    adjust=_llama_adjust,
    explain=_llama_explain,
)


def _gemma_adjust(flat: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    _rope(flat, theirs)
    flat["target.scale"] = size_in(flat, "decoder.d_model") ** 0.5
    chosen = theirs.get("hidden_activation")
    if chosen is not None:  # overrides hidden_act, which early files got wrong
        flat["decoder.activation"] = Field("hidden_activation", "", chosen, ACTIVATIONS).read(theirs)
    elif theirs.get("hidden_act", "gelu") == "gelu":
        flat["decoder.activation"] = "gelu_tanh"
    if "lm.tied" in flat:
        flat["lm.tied"] = theirs.get("tie_word_embeddings", True) is not False
    if "tag.labels" in flat:
        dropout = theirs.get("classifier_dropout", theirs.get("hidden_dropout"))
        flat["tag.dropout"] = 0.1 if dropout is None else dropout


def _gemma_explain(theirs: Config, config: ModelConfig) -> None:
    _llama_explain(theirs, config)
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True
    theirs["hidden_activation"] = theirs["hidden_act"]
    del theirs["mlp_bias"]


_GEMMA_DEFAULTS = {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "intermediate_size": 24576,
    "max_position_embeddings": 8192,
}

GEMMA = Family(
    name="gemma",
    fields=tuple(
        Field(f.theirs, f.ours, _GEMMA_DEFAULTS.get(f.theirs, f.default), f.names)
        for f in _llama_fields("hidden_act", "gelu_pytorch_tanh", None)
    ),
    fixed={**_LLAMA_FIXED, "decoder.norm_offset": 1.0},
    tensors=_LLAMA_TENSORS,
    heads={
        "GemmaForCausalLM": _LM,
        "GemmaModel": _BARE,
        "GemmaForSequenceClassification": _SCORE,
        "GemmaForTokenClassification": _tag("score"),
    },
    prefix="model.",
    only={"use_bidirectional_attention": False},
    unused=(*_ROPE_FIELDS, "hidden_activation"),
    spare=("rotary_emb.inv_freq", "lm_head.weight"),
    adjust=_gemma_adjust,
    explain=_gemma_explain,
)
