"""Tables of encoder–decoders: BART (Lewis et al. 2020), Marian (2018), Whisper (Radford et al. 2022)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.hub.family import (
    Config,
    Family,
    Field,
    Head,
    Tensor,
    read_tied,
    size_in,
    span_head,
    switch,
    with_defaults,
)
from headway.hub.tables.bert import ACTIVATIONS


def sides(field: str) -> str:
    return f"encoder.{field} decoder.{field}"


def by_last_token(labels: int, prefix: str | None = None) -> Head:
    """A classifier on the decoder's hidden state of the last token."""
    return Head(
        {"classify.labels": labels, "classify.pool": "last", "classify.dense": "tanh"},
        (
            Tensor("classify.dense", "classification_head.dense"),
            Tensor("classify.output", "classification_head.out_proj"),
        ),
        labels="classify.labels",
        prefix=prefix,
    )


SHARED = {f"{{prefix}}{side}.embed_tokens.weight": "{prefix}shared.weight" for side in ("encoder", "decoder")}
"""Encoder and decoder share one token table; many files hold it three times."""


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
    own = []
    for stack in ("encoder", "decoder"):
        own.append(Field(f"{stack}_layers", f"{stack}.n_layers", 12))
        own.append(Field(f"{stack}_attention_heads", f"{stack}.n_heads", 16))
        own.append(Field(f"{stack}_ffn_dim", f"{stack}.d_ff", 4096))
    return (
        Field("vocab_size", vocab, 50265),
        Field("d_model", sides("d_model"), 1024),
        *own,
        Field("activation_function", sides("activation"), "gelu", ACTIVATIONS),
        Field("dropout", f"{sides('dropout')} source.dropout target.dropout", 0.1),
        Field("attention_dropout", sides("attention_dropout"), 0.0),
        Field("activation_dropout", sides("activation_dropout"), 0.0),
        *((Field("max_position_embeddings", length, 1024),) if length else ()),
    )


_BART_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}

_BART_FIXED = {"decoder.causal": True, "decoder.cross": True, "source.kind": "tokens", "target.kind": "tokens"}

_POST_NORM = {
    f"{side}.{key}": value
    for side in ("encoder", "decoder")
    for key, value in (("norm_at", "post"), ("final_norm", False))
}


def read_bart(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if switch(theirs, "scale_embedding", False):
        settings["source.scale"] = settings["target.scale"] = size_in(settings, "encoder.d_model") ** 0.5
    read_tied(settings, theirs, True)
    if "classify.labels" in settings:
        settings["classify.dropout"] = theirs.get("classifier_dropout") or 0.0


def write_bart(theirs: Config, config: ModelConfig) -> None:
    assert config.target is not None
    theirs["scale_embedding"] = config.target.scale != 1.0
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True
    if config.classify:
        theirs["classifier_dropout"] = config.classify.dropout


_LOGIT_BIAS = Tensor("lm.output.bias", "final_logits_bias", "lead1")
_BART_LM = Head(
    {"lm.tied": True, "lm.bias": "fixed"},
    (_LOGIT_BIAS, Tensor("lm.output.weight", "lm_head.weight")),
    tied_copies={"lm_head.weight": "{prefix}shared.weight|{prefix}decoder.embed_tokens.weight"},
)
_UNUSED = ("tie_word_embeddings", "scale_embedding", "is_decoder", "add_cross_attention", "extra_pos_embeddings")
_NOT_OURS = {
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "normalize_before": False,
    "do_blenderbot_90_layernorm": False,
}
"""Switches of the first BART code for other models: mBART, Pegasus, Blenderbot."""

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
        "BartForConditionalGeneration": _BART_LM,
        "BartModel": Head(prefix=""),
        "BartForSequenceClassification": by_last_token(3),
        "BartForQuestionAnswering": span_head(),
    },
    prefix="model.",
    aliases=_BART_ALIASES,
    only={"static_position_embeddings": False, "normalize_embedding": True, **_NOT_OURS},
    unused=_UNUSED,
    tied_copies=SHARED,
    special={"pad": 1, "bos": 0, "eos": 2, "start": 2},
    on_read=read_bart,
    on_write=write_bart,
)


def _read_marian(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    if not switch(theirs, "share_encoder_decoder_embeddings", True):
        settings["shared_embedding"] = False
        settings["target.vocab"] = theirs.get("decoder_vocab_size") or settings["source.vocab"]
    read_bart(settings, theirs, names)


def _write_marian(theirs: Config, config: ModelConfig) -> None:
    assert config.target is not None
    theirs["share_encoder_decoder_embeddings"] = config.shared_embedding
    theirs["decoder_vocab_size"] = config.target.vocab
    write_bart(theirs, config)


MARIAN = Family(
    name="marian",
    fields=with_defaults(
        _bart_fields("source.positions.length target.positions.length", "source.vocab target.vocab"), vocab_size=58101
    ),
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
    heads={"MarianMTModel": _BART_LM, "MarianModel": Head(prefix="")},
    prefix="model.",
    aliases=_BART_ALIASES,
    only={"static_position_embeddings": True, "normalize_embedding": False, **_NOT_OURS},
    unused=(*_UNUSED, "share_encoder_decoder_embeddings", "decoder_vocab_size"),
    sinusoidal_tables=("{prefix}encoder.embed_positions.weight", "{prefix}decoder.embed_positions.weight"),
    tied_copies=SHARED,
    special={"pad": 58100, "eos": 0, "start": 58100},
    on_read=_read_marian,
    on_write=_write_marian,
)

_WHISPER_TINY = {"layers": 4, "attention_heads": 6, "ffn_dim": 1536}


def _read_whisper(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_tied(settings, theirs, True)


def _write_whisper(theirs: Config, config: ModelConfig) -> None:
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True


WHISPER = Family(
    name="whisper",
    fields=(
        *with_defaults(
            _bart_fields("", "target.vocab"),
            vocab_size=51865,
            d_model=384,
            dropout=0.0,
            **{f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in _WHISPER_TINY.items()},
        ),
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
        "WhisperForConditionalGeneration": Head(
            {"lm.tied": True},
            (Tensor("lm.output.weight", "proj_out.weight"),),
            tied_copies={"proj_out.weight": "{prefix}decoder.embed_tokens.weight"},
        ),
        "WhisperModel": Head(prefix=""),
    },
    prefix="model.",
    aliases={**_BART_ALIASES, "num_key_value_heads": "encoder_attention_heads"},
    only={"scale_embedding": False, "use_weighted_layer_sum": False},
    unused=(
        *("tie_word_embeddings", "is_decoder", "classifier_proj_size", "median_filter_width", "use_timestamp"),
        *("num_frames", "lang_detection_threshold", "apply_spec_augment"),
        *(f"mask_{axis}_{what}" for axis in ("time", "feature") for what in ("prob", "length", "min_masks")),
    ),
    special={"pad": 50256, "bos": 50256, "eos": 50256, "start": 50257},
    on_read=_read_whisper,
    on_write=_write_whisper,
)
