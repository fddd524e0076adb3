"""Encoder–decoders: T5 (Raffel et al. 2020), BART (Lewis et al. 2020), Marian (2018), Whisper (Radford et al. 2022)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headway.config import ModelConfig
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in
from headway.hub.tables.bert import ACTIVATIONS
from headway.settings import short

# --------------------------------------------------------------------------- T5


def _t5_side(side: str) -> Iterator[Tensor]:
    block = f"{side}.block.{{i}}.layer"
    last = 2 if side == "decoder" else 1
    ours = f"{side}.blocks.{{i}}"
    yield Tensor(f"{ours}.residual1.norm", f"{block}.0.layer_norm")
    yield Tensor(f"{ours}.attention.qkv", "|".join(f"{block}.0.SelfAttention.{p}" for p in "qkv"))
    yield Tensor(f"{ours}.attention.out", f"{block}.0.SelfAttention.o")
    if side == "decoder":
        yield Tensor(f"{ours}.residual_cross.norm", f"{block}.1.layer_norm")
        yield Tensor(f"{ours}.cross.q", f"{block}.1.EncDecAttention.q")
        yield Tensor(f"{ours}.cross.kv", "|".join(f"{block}.1.EncDecAttention.{p}" for p in "kv"))
        yield Tensor(f"{ours}.cross.out", f"{block}.1.EncDecAttention.o")
    yield Tensor(f"{ours}.residual2.norm", f"{block}.{last}.layer_norm")
    gated = "|".join(f"{block}.{last}.DenseReluDense.wi_{n}" for n in (0, 1))
    yield Tensor(f"{ours}.ffn.up", gated, when=f"{side}.gated")
    yield Tensor(f"{ours}.ffn.up", f"{block}.{last}.DenseReluDense.wi", when=f"!{side}.gated")
    yield Tensor(f"{ours}.ffn.down", f"{block}.{last}.DenseReluDense.wo")
    relative = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    yield Tensor(f"{side}.relative.table", relative)
    yield Tensor(f"{side}.norm", f"{side}.final_layer_norm")


def _t5_adjust(flat: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    proj = str(theirs.get("feed_forward_proj", "relu"))
    gate, _, act = proj.rpartition("-")
    act = "gelu_new" if proj == "gated-gelu" else act
    if gate not in ("", "gated") or act not in ACTIVATIONS:
        raise ConfigError("C022", f"config.json: feed_forward_proj = {short(proj)}")
    scaled = theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True) is not False)
    for side in ("encoder", "decoder"):
        flat[f"{side}.gated"], flat[f"{side}.activation"] = gate == "gated", ACTIVATIONS[act]
    if flat["decoder.n_layers"] is None:
        flat["decoder.n_layers"] = flat["encoder.n_layers"]
    if "lm.tied" in flat:  # 1.0 ties and scales; 1.1 does neither, and its file says so
        flat["lm.tied"] = "lm_head.weight" not in names
        flat["lm.scale"] = size_in(flat, "decoder.d_model") ** -0.5 if scaled else 1.0
    if "classify.labels" in flat:
        flat["classify.dropout"] = theirs.get("classifier_dropout", 0.0)
    if "tag.labels" in flat:
        flat["tag.dropout"] = theirs.get("classifier_dropout", 0.0)


def _t5_explain(theirs: Config, config: ModelConfig) -> None:
    stack = config.encoder
    assert stack is not None
    act = {"relu": "relu", "gelu_tanh": "gelu_new", "gelu": "gelu", "silu": "silu", "tanh": "tanh"}[stack.activation]
    if stack.gated:
        theirs["feed_forward_proj"] = "gated-gelu" if act == "gelu_new" else f"gated-{act}"
    else:
        theirs["feed_forward_proj"] = act
    scaled = config.lm is None or config.lm.scale != 1.0
    theirs |= {"tie_word_embeddings": scaled, "scale_decoder_outputs": scaled}
    if config.decoder is None:
        theirs["num_decoder_layers"] = stack.n_layers
    head = config.classify or config.tag
    if head:
        theirs["classifier_dropout"] = head.dropout


def _t5_stack(side: str) -> Config:
    return {
        f"{side}.norm": "rmsnorm",
        f"{side}.scale": 1.0,
        f"{side}.qkv_bias": False,
        f"{side}.out_bias": False,
        f"{side}.ffn_bias": False,
        f"{side}.causal": side == "decoder",
        f"{side}.cross": side == "decoder",
    }


def _sides(field: str) -> str:
    return f"encoder.{field} decoder.{field}"


def _by_last_token(labels: int, prefix: str | None = None) -> Head:
    """A classifier that reads what the decoder makes of the last token."""
    return Head(
        {"classify.labels": labels, "classify.pool": "last", "classify.dense": "tanh"},
        (
            Tensor("classify.dense", "classification_head.dense"),
            Tensor("classify.output", "classification_head.out_proj"),
        ),
        labels="classify.labels",
        prefix=prefix,
    )


_ENCODER_ONLY = {"decoder": None, "target": None, "shared_embedding": False}

T5 = Family(
    name="t5",
    fields=(
        Field("vocab_size", "source.vocab target.vocab", 32128),
        Field("d_model", _sides("d_model"), 512),
        Field("d_kv", _sides("d_head"), 64),
        Field("d_ff", _sides("d_ff"), 2048),
        Field("num_layers", "encoder.n_layers", 6),
        Field("num_decoder_layers", "decoder.n_layers"),
        Field("num_heads", _sides("n_heads"), 8),
        Field("relative_attention_num_buckets", _sides("relative.buckets"), 32),
        Field("relative_attention_max_distance", _sides("relative.max_distance"), 128),
        Field(
            "dropout_rate",
            "encoder.dropout decoder.dropout "
            + " ".join((_sides("attention_dropout"), _sides("activation_dropout"), "source.dropout target.dropout")),
            0.1,
        ),
        Field("layer_norm_epsilon", _sides("norm_eps"), 1e-6),
    ),
    fixed={
        **_t5_stack("encoder"),
        **_t5_stack("decoder"),
        "source.kind": "tokens",
        "source.positions.kind": "none",
        "target.kind": "tokens",
        "target.positions.kind": "none",
        "shared_embedding": True,
        "init.kind": "t5",
    },
    tensors=(Tensor("source.table", "shared"), *_t5_side("encoder"), *_t5_side("decoder")),
    heads={
        "T5ForConditionalGeneration": Head(
            {"lm.tied": True}, (Tensor("lm.output.weight", "lm_head.weight"),), prefix=""
        ),
        "T5EncoderModel": Head(_ENCODER_ONLY, prefix=""),
        "T5Model": Head(prefix=""),
        "T5ForSequenceClassification": _by_last_token(2, "transformer."),
        "T5ForTokenClassification": Head(
            {**_ENCODER_ONLY, "tag.labels": 2},
            (Tensor("tag.output", "classifier"),),
            labels="tag.labels",
            prefix="transformer.",
        ),
        "T5ForQuestionAnswering": Head({"span.ffn": False}, (Tensor("span.output", "qa_outputs"),), prefix=""),
    },
    prefix="",
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    },
    only={"is_decoder": False},
    unused=(
        "tie_word_embeddings",
        "scale_decoder_outputs",
        "feed_forward_proj",
        "dense_act_fn",
        "is_gated_act",
        "n_positions",
    ),
    spare=("embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight", "lm_head.weight"),
    adjust=_t5_adjust,
    explain=_t5_explain,
)

# --------------------------------------------------------------------------- BART and what follows its layout


def _bart_side(side: str) -> Iterator[Tensor]:
    ours, theirs = f"{side}.blocks.{{i}}", f"{side}.layers.{{i}}"
    yield Tensor(f"{ours}.attention.qkv", "|".join(f"{theirs}.self_attn.{p}_proj" for p in "qkv"))
    yield Tensor(f"{ours}.attention.out", f"{theirs}.self_attn.out_proj")
    yield Tensor(f"{ours}.residual1.norm", f"{theirs}.self_attn_layer_norm")
    if side == "decoder":
        yield Tensor(f"{ours}.cross.q", f"{theirs}.encoder_attn.q_proj")
        yield Tensor(f"{ours}.cross.kv", "|".join(f"{theirs}.encoder_attn.{p}_proj" for p in "kv"))
        yield Tensor(f"{ours}.cross.out", f"{theirs}.encoder_attn.out_proj")
        yield Tensor(f"{ours}.residual_cross.norm", f"{theirs}.encoder_attn_layer_norm")
    yield Tensor(f"{ours}.ffn.up", f"{theirs}.fc1")
    yield Tensor(f"{ours}.ffn.down", f"{theirs}.fc2")
    yield Tensor(f"{ours}.residual2.norm", f"{theirs}.final_layer_norm")


def _bart_fields(length: str, vocab: str) -> tuple[Field, ...]:
    sides = (("encoder", "source"), ("decoder", "target"))
    own = []
    for stack, _ in sides:
        own.append(Field(f"{stack}_layers", f"{stack}.n_layers", 12))
        own.append(Field(f"{stack}_attention_heads", f"{stack}.n_heads", 16))
        own.append(Field(f"{stack}_ffn_dim", f"{stack}.d_ff", 4096))
    return (
        Field("vocab_size", vocab, 50265),
        Field("d_model", _sides("d_model"), 1024),
        *own,
        Field("activation_function", _sides("activation"), "gelu", ACTIVATIONS),
        Field("dropout", f"{_sides('dropout')} source.dropout target.dropout", 0.1),
        Field("attention_dropout", _sides("attention_dropout"), 0.0),
        Field("activation_dropout", _sides("activation_dropout"), 0.0),
        *((Field("max_position_embeddings", length, 1024),) if length else ()),
    )


_BART_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}

_BART_FIXED = {
    "decoder.causal": True,
    "decoder.cross": True,
    "source.kind": "tokens",
    "target.kind": "tokens",
}

_POST_NORM = {
    f"{side}.{key}": value
    for side in ("encoder", "decoder")
    for key, value in (("norm_at", "post"), ("final_norm", False))
}


def _bart_adjust(flat: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if theirs.get("scale_embedding"):
        flat["source.scale"] = flat["target.scale"] = size_in(flat, "encoder.d_model") ** 0.5
    if "lm.tied" in flat:
        flat["lm.tied"] = theirs.get("tie_word_embeddings", True) is not False
    if "classify.labels" in flat:
        flat["classify.dropout"] = theirs.get("classifier_dropout") or 0.0


def _bart_explain(theirs: Config, config: ModelConfig) -> None:
    assert config.target is not None
    theirs["scale_embedding"] = config.target.scale != 1.0
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True
    if config.classify:
        theirs["classifier_dropout"] = config.classify.dropout


_LOGIT_BIAS = Tensor("lm.output.bias", "final_logits_bias", "lead1")
_BART_LM = {"lm.tied": True, "lm.bias": "fixed"}
_UNUSED = (
    "tie_word_embeddings",
    "scale_embedding",
    "is_decoder",
    "add_cross_attention",
    "extra_pos_embeddings",
)
_NOT_OURS = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "normalize_before": False,
    "do_blenderbot_90_layernorm": False,
}
"""Switches of the first BART code for its other models: mBART, Pegasus, Blenderbot."""
_COPIES = ("embed_tokens.weight", "lm_head.weight", "final_logits_bias")

BART = Family(
    name="bart",
    fields=_bart_fields("source.positions.length target.positions.length", "source.vocab target.vocab"),
    fixed={
        **_BART_FIXED,
        **_POST_NORM,
        "shared_embedding": True,
        "source.positions.kind": "learned",
        "target.positions.kind": "learned",
        "source.positions.offset": 2,
        "target.positions.offset": 2,
        "source.norm": True,
        "target.norm": True,
    },
    tensors=(
        Tensor("source.table", "shared"),
        Tensor("source.positions.table", "encoder.embed_positions"),
        Tensor("target.positions.table", "decoder.embed_positions"),
        Tensor("source.norm", "encoder.layernorm_embedding"),
        Tensor("target.norm", "decoder.layernorm_embedding"),
        *_bart_side("encoder"),
        *_bart_side("decoder"),
    ),
    heads={
        "BartForConditionalGeneration": Head(_BART_LM, (_LOGIT_BIAS, Tensor("lm.output.weight", "lm_head.weight"))),
        "BartModel": Head(prefix=""),
        "BartForSequenceClassification": _by_last_token(3),
        "BartForQuestionAnswering": Head({"span.ffn": False}, (Tensor("span.output", "qa_outputs"),)),
    },
    prefix="model.",
    aliases=_BART_ALIASES,
    only={"static_position_embeddings": False, "normalize_embedding": True, **_NOT_OURS},
    unused=_UNUSED,
    spare=_COPIES,
    adjust=_bart_adjust,
    explain=_bart_explain,
)


def _marian_adjust(flat: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if theirs.get("share_encoder_decoder_embeddings", True) is False:
        flat["shared_embedding"] = False
        flat["target.vocab"] = theirs.get("decoder_vocab_size") or flat["source.vocab"]
    _bart_adjust(flat, theirs, names)


def _marian_explain(theirs: Config, config: ModelConfig) -> None:
    assert config.target is not None
    theirs["share_encoder_decoder_embeddings"] = config.shared_embedding
    theirs["decoder_vocab_size"] = config.target.vocab
    _bart_explain(theirs, config)


MARIAN = Family(
    name="marian",
    fields=_bart_fields("source.positions.length target.positions.length", "source.vocab target.vocab"),
    fixed={
        **_BART_FIXED,
        **_POST_NORM,
        "shared_embedding": True,
        **{
            f"{s}.positions.{k}": v
            for s in ("source", "target")
            for k, v in (("kind", "sinusoidal"), ("layout", "halves"))
        },
    },
    tensors=(
        Tensor("source.table", "shared", when="shared_embedding"),
        Tensor("source.table", "encoder.embed_tokens", when="!shared_embedding"),
        Tensor("target.table", "decoder.embed_tokens"),
        *_bart_side("encoder"),
        *_bart_side("decoder"),
    ),
    heads={
        "MarianMTModel": Head(_BART_LM, (_LOGIT_BIAS, Tensor("lm.output.weight", "lm_head.weight"))),
        "MarianModel": Head(prefix=""),
    },
    prefix="model.",
    aliases=_BART_ALIASES,
    only={"static_position_embeddings": True, "normalize_embedding": False, **_NOT_OURS},
    unused=(*_UNUSED, "share_encoder_decoder_embeddings", "decoder_vocab_size"),
    spare=(*_COPIES, "embed_positions.weight"),
    adjust=_marian_adjust,
    explain=_marian_explain,
)

WHISPER = Family(
    name="whisper",
    fields=(
        *_bart_fields("", "target.vocab"),
        Field("num_mel_bins", "source.channels", 80),
        Field("max_source_positions", "source.positions.length", 1500),
        Field("max_target_positions", "target.positions.length", 448),
    ),
    fixed={
        **_BART_FIXED,
        "source.kind": "frames",
        "encoder.key_bias": False,
        "decoder.key_bias": False,
        "source.positions.kind": "learned",
        "target.positions.kind": "learned",
    },
    tensors=(
        Tensor("source.conv1", "encoder.conv1"),
        Tensor("source.conv2", "encoder.conv2"),
        Tensor("source.positions.table", "encoder.embed_positions"),
        Tensor("target.table", "decoder.embed_tokens"),
        Tensor("target.positions.table", "decoder.embed_positions"),
        *_bart_side("encoder"),
        *_bart_side("decoder"),
        Tensor("encoder.norm", "encoder.layer_norm"),
        Tensor("decoder.norm", "decoder.layer_norm"),
    ),
    heads={
        "WhisperForConditionalGeneration": Head({"lm.tied": True}, (Tensor("lm.output.weight", "proj_out.weight"),)),
        "WhisperModel": Head(prefix=""),
    },
    prefix="model.",
    aliases={**_BART_ALIASES, "num_key_value_heads": "encoder_attention_heads"},
    only={"scale_embedding": False, "use_weighted_layer_sum": False},
    unused=(
        "tie_word_embeddings",
        "is_decoder",
        "classifier_proj_size",
        "apply_spec_augment",
        "mask_time_prob",
        "mask_time_length",
        "mask_time_min_masks",
        "mask_feature_prob",
        "mask_feature_length",
        "mask_feature_min_masks",
        "median_filter_width",
        "use_timestamp",
        "num_frames",
        "lang_detection_threshold",
    ),
    spare=("proj_out.weight",),
    adjust=None,
)
