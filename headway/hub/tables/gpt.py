"""Tables of decoders: GPT-2 (Radford et al. 2019), Llama 2 and 3 (Touvron 2023), Mistral (2023), Gemma (2024)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headway.config.model import ModelConfig, RopeConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, read_tied, size_in, span_head, with_defaults
from headway.hub.tables.bert import ACTIVATIONS

_BARE = Head(prefix="")
_SCORE = Head(
    {"classify.labels": 2, "classify.pool": "last", "classify.bias": False},
    (Tensor("classify.output", "score"),),
    labels="classify.labels",
)
_SPAN = span_head("transformer.")


def _lm(table: str) -> Head:
    tied_copies = {"lm_head.weight": f"{{prefix}}{table}.weight"}
    return Head({"lm.tied": True}, (Tensor("lm.output.weight", "lm_head.weight"),), tied_copies=tied_copies)


def _tag_dropout(theirs: Mapping[str, Any]) -> Any:
    said = (theirs.get("classifier_dropout"), theirs.get("hidden_dropout"))
    return next((value for value in said if value is not None), 0.1)


def _tag(output: str) -> Head:
    return Head({"tag.labels": 2}, (Tensor("tag.output", output),), labels="tag.labels")


def _blocks(*pairs: tuple[str, str, str]) -> tuple[Tensor, ...]:
    return tuple(Tensor(f"decoder.blocks.{{i}}.{ours}", theirs, op) for ours, theirs, op in pairs)


def _read_gpt2(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if settings["decoder.d_ff"] is None and isinstance(settings["decoder.d_model"], int):
        settings["decoder.d_ff"] = 4 * settings["decoder.d_model"]
    read_tied(settings, theirs, True)
    if "tag.labels" in settings:
        settings["tag.dropout"] = _tag_dropout(theirs)


def _write_gpt2(theirs: Config, config: ModelConfig) -> None:
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
        "GPT2LMHeadModel": _lm("wte"),
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
    unneeded=("attn.bias", "attn.masked_bias"),
    special={"bos": 50256, "eos": 50256},
    on_read=_read_gpt2,
    on_write=_write_gpt2,
)

_LLAMA_TENSORS = (
    Tensor("target.table", "embed_tokens"),
    *_blocks(
        ("residual1.norm", "layers.{i}.input_layernorm", ""),
        ("attention.qkv", "|".join(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv"), ""),
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


def _llama_fields(activation: str) -> tuple[Field, ...]:
    names = {activation: ACTIVATIONS[activation], **ACTIVATIONS}
    return (
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


_ROPE_KEYS: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_factor",
        "high_freq_factor": "high_factor",
        "original_max_position_embeddings": "original_length",
    },
}
"""Types of rotary positions, each with their keys → our fields."""
ROPE_FIELDS = ("rope_theta", "rope_scaling", "rope_parameters")
SHARE = "partial_rotary_factor"
"""The share of a head that is rotated: a field of config.json, or of its rope_parameters."""


def read_rope(
    settings: Config, theirs: Mapping[str, Any], *, partial: float | None = None, stacks: Sequence[str] = ("decoder",)
) -> None:
    """config.json has rope_theta and rope_scaling, or rope_parameters, which holds both.

    `partial` is the share of a head that is rotated if the file does not say it; None: always the whole head.
    """
    found = {
        name: _rope_settings(name, theirs[name], settings, theirs, partial)
        for name in ("rope_parameters", "rope_scaling")
        if theirs.get(name) not in (None, {})
    }
    if len(found) == 2 and found["rope_parameters"] != found["rope_scaling"]:
        both = " and ".join(f"{name} = {short(theirs[name])}" for name in found)
        raise ConfigError("C004", f"config.json: {both} do not agree", "remove the wrong one")
    rope = next(iter(found.values()), _rope_settings("rope_parameters", {}, settings, theirs, partial))
    settings.update({f"{stack}.rope.{name}": value for stack in stacks for name, value in rope.items()})


def _rope_settings(
    name: str, rope: Any, settings: Config, theirs: Mapping[str, Any], partial: float | None = None
) -> Config:
    """One of the two tables as our settings. All keys have to be known, and all values of rope_theta the same."""
    if not isinstance(rope, Mapping):
        raise ConfigError("C002", f"config.json: {name} = {short(rope)} should be a table")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(kind, str) or kind not in _ROPE_KEYS or rope.get("type", kind) != kind:
        raise ConfigError("C022", f"config.json: rope type {short(kind)}; headway knows {', '.join(_ROPE_KEYS)}")
    keys = _ROPE_KEYS[kind]
    for key, value in rope.items():
        if key == SHARE and (partial is not None or value == 1):
            continue
        if key not in (*keys, "rope_type", "type", "rope_theta") and value is not None:
            what = f"unknown field {short(key)} = {short(value)} in {name} of type {kind}"
            raise ConfigError("C021", f"config.json: {what}", "it may change what the model computes")
    theta = theirs.get("rope_theta", 10_000.0)
    inner = rope.get("rope_theta", theta)
    if inner is not theta and inner != theta and "rope_theta" in theirs:
        both = f"rope_theta = {short(theta)} and {name}.rope_theta = {short(inner)}"
        raise ConfigError("C004", f"config.json: {both} do not agree", "remove the wrong one")
    usual = {"original_max_position_embeddings": settings["target.positions.length"]}
    for key in keys:
        if key not in rope and key not in usual:
            raise ConfigError("C004", f'config.json: rope type {kind} needs "{key}"')
    scaling = {"scaling": kind} if keys else {}
    if partial is not None:
        scaling["partial"] = rope.get(SHARE, theirs.get(SHARE, partial))
    return {"theta": inner, **scaling, **{ours: rope.get(key, usual.get(key)) for key, ours in keys.items()}}


def _read_llama(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_rope(settings, theirs)
    read_tied(settings, theirs, False)
    if "tag.labels" in settings:
        settings["tag.dropout"] = _tag_dropout(theirs)


def write_rope(theirs: Config, rope: RopeConfig) -> None:
    theirs["rope_theta"] = rope.theta  # transformers 5 still reads this place of older versions
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


def _write_llama(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None and config.decoder.rope is not None
    stack = config.decoder
    write_rope(theirs, config.decoder.rope)
    if stack.d_head is None:
        theirs.pop("head_dim", None)  # without it the file means the same, and the config read back is equal
    theirs["num_key_value_heads"] = stack.kv_heads
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else False
    if config.tag:
        theirs["classifier_dropout"] = config.tag.dropout


_ROPE_FIELDS = ("tie_word_embeddings", *ROPE_FIELDS, "hidden_dropout")

LLAMA = Family(
    name="llama",
    fields=_llama_fields("silu"),
    fixed=_LLAMA_FIXED,
    tensors=_LLAMA_TENSORS,
    heads={
        "LlamaForCausalLM": _lm("embed_tokens"),
        "LlamaModel": _BARE,
        "LlamaForSequenceClassification": _SCORE,
        "LlamaForTokenClassification": _tag("score"),
        "LlamaForQuestionAnswering": _SPAN,
    },
    prefix="model.",
    unused=_ROPE_FIELDS,
    unneeded=("rotary_emb.inv_freq",),
    special={"bos": 1, "eos": 2},
    on_read=_read_llama,
    on_write=_write_llama,
)


def _read_gemma(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_rope(settings, theirs)
    settings["target.scale"] = size_in(settings, "decoder.d_model") ** 0.5
    _gemma_activation(settings, theirs)
    read_tied(settings, theirs, True)
    if "tag.labels" in settings:
        settings["tag.dropout"] = _tag_dropout(theirs)


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
    _write_llama(theirs, config)
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True
    theirs["hidden_activation"] = theirs["hidden_act"]


GEMMA = Family(
    name="gemma",
    fields=with_defaults(
        tuple(f for f in _llama_fields("gelu_pytorch_tanh") if f.theirs != "mlp_bias"),
        vocab_size=256000,
        hidden_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        intermediate_size=24576,
        max_position_embeddings=8192,
    ),
    fixed={**_LLAMA_FIXED, "decoder.norm_offset": 1.0, "decoder.ffn_bias": False},
    tensors=_LLAMA_TENSORS,
    heads={
        "GemmaForCausalLM": _lm("embed_tokens"),
        "GemmaModel": _BARE,
        "GemmaForSequenceClassification": _SCORE,
        "GemmaForTokenClassification": _tag("score"),
    },
    prefix="model.",
    only={"use_bidirectional_attention": False},
    unused=(*_ROPE_FIELDS, "hidden_activation"),
    unneeded=("rotary_emb.inv_freq",),
    special={"pad": 0, "bos": 2, "eos": 1},
    on_read=_read_gemma,
    on_write=_write_gemma,
)

MISTRAL = Family(
    name="mistral",
    fields=(
        *with_defaults(
            tuple(f for f in _llama_fields("silu") if f.theirs not in ("attention_bias", "mlp_bias")),
            num_key_value_heads=8,
            intermediate_size=14336,
            max_position_embeddings=131072,
        ),
        Field("sliding_window", "decoder.window", 4096),
    ),
    fixed={**_LLAMA_FIXED, "decoder.qkv_bias": False, "decoder.out_bias": False, "decoder.ffn_bias": False},
    tensors=_LLAMA_TENSORS,
    heads={
        "MistralForCausalLM": _lm("embed_tokens"),
        "MistralModel": _BARE,
        "MistralForSequenceClassification": _SCORE,
        "MistralForTokenClassification": _tag("score"),
    },
    prefix="model.",
    unused=_ROPE_FIELDS,
    unneeded=("rotary_emb.inv_freq",),
    special={"bos": 1, "eos": 2},
    on_read=_read_llama,
    on_write=_write_llama,
)
