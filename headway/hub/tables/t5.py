"""Tables of T5 (Raffel et al. 2020), T5 1.1, Flan-T5, mT5 (Xue et al. 2021) and LongT5 (Guo et al. 2022)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in, span_head, switch, with_defaults
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.seq2seq import SHARED, by_last_token, sides


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


def _read_t5(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    proj = str(theirs.get("feed_forward_proj", "relu"))
    gate, _, act = proj.rpartition("-")
    act = "gelu_new" if proj == "gated-gelu" else act
    act = theirs.get("dense_act_fn", act)  # written beside feed_forward_proj and derived from it; it comes first
    if gate not in ("", "gated") or not isinstance(act, str) or act not in ACTIVATIONS:
        name, value = ("dense_act_fn", act) if "dense_act_fn" in theirs else ("feed_forward_proj", proj)
        raise ConfigError("C022", f"config.json: {name} = {short(value)}; headway knows {', '.join(ACTIVATIONS)}")
    gated = switch(theirs, "is_gated_act", gate == "gated")
    scaled = switch(theirs, "scale_decoder_outputs", theirs.get("tie_word_embeddings") is not False)
    for side in ("encoder", "decoder"):
        settings[f"{side}.gated"], settings[f"{side}.activation"] = gated, ACTIVATIONS[act]
    if settings["decoder.n_layers"] is None:
        settings["decoder.n_layers"] = settings["encoder.n_layers"]
    if "lm.tied" in settings:  # T5 1.0 ties and scales; 1.1 does neither, as its file shows
        settings["lm.tied"] = "lm_head.weight" not in names
        settings["lm.scale"] = size_in(settings, "decoder.d_model") ** -0.5 if scaled else 1.0
    if "classify.labels" in settings:
        settings["classify.dropout"] = theirs.get("classifier_dropout") or 0.0
    if "tag.labels" in settings:
        settings["tag.dropout"] = theirs.get("classifier_dropout") or 0.0


def _write_t5(theirs: Config, config: ModelConfig) -> None:
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


_ENCODER_ONLY = {"decoder": None, "target": None, "shared_embedding": False}

T5 = Family(
    name="t5",
    fields=(
        Field("vocab_size", "source.vocab target.vocab", 32128),
        Field("d_model", sides("d_model"), 512),
        Field("d_kv", sides("d_head"), 64),
        Field("d_ff", sides("d_ff"), 2048),
        Field("num_layers", "encoder.n_layers", 6),
        Field("num_decoder_layers", "decoder.n_layers"),
        Field("num_heads", sides("n_heads"), 8),
        Field("relative_attention_num_buckets", sides("relative.buckets"), 32),
        Field("relative_attention_max_distance", sides("relative.max_distance"), 128),
        Field(
            "dropout_rate",
            "encoder.dropout decoder.dropout "
            + " ".join((sides("attention_dropout"), sides("activation_dropout"), "source.dropout target.dropout")),
            0.1,
        ),
        Field("layer_norm_epsilon", sides("norm_eps"), 1e-6),
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
        "T5ForSequenceClassification": by_last_token(2, "transformer."),
        "T5ForTokenClassification": Head(
            {**_ENCODER_ONLY, "tag.labels": 2},
            (Tensor("tag.output", "classifier"),),
            labels="tag.labels",
            prefix="transformer.",
        ),
        "T5ForQuestionAnswering": span_head(""),
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
        *("tie_word_embeddings", "scale_decoder_outputs", "feed_forward_proj", "dense_act_fn", "is_gated_act"),
        "n_positions",
    ),
    unneeded=("EncDecAttention.relative_attention_bias.weight",),
    tied_copies=SHARED,
    special={"pad": 0, "eos": 1},
    on_read=_read_t5,
    on_write=_write_t5,
)


def _read_mt5(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    """As T5 1.1: gated, and the output is not scaled."""
    _read_t5(settings, {"feed_forward_proj": "gated-gelu", **theirs, "scale_decoder_outputs": False}, names)


def _write_mt5(theirs: Config, config: ModelConfig) -> None:
    _write_t5(theirs, config)
    del theirs["scale_decoder_outputs"]
    theirs["tie_word_embeddings"] = config.lm is None or config.lm.tied


MT5 = replace(
    T5,
    name="mt5",
    fields=with_defaults(T5.fields, vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6),
    heads={f"M{name}": head for name, head in T5.heads.items()},
    unused=tuple(name for name in T5.unused if name != "scale_decoder_outputs"),
    special={**T5.special, "start": 0},
    on_read=_read_mt5,
    on_write=_write_mt5,
)


def _read_longt5(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    _read_t5(settings, theirs, names)
    settings["encoder.window"] = size_in({"local_radius": theirs.get("local_radius", 127)}, "local_radius") + 1


def _write_longt5(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None and config.encoder.window is not None
    _write_t5(theirs, config)
    theirs |= {"encoder_attention_type": "local", "local_radius": config.encoder.window - 1}


LONGT5 = replace(
    T5,
    name="longt5",
    tensors=tuple(
        replace(entry, theirs=entry.theirs.replace("SelfAttention", "LocalSelfAttention"))
        if entry.ours.startswith("encoder.")
        else entry
        for entry in T5.tensors
    ),
    heads={
        f"Long{name}": head
        for name, head in T5.heads.items()
        if name in ("T5ForConditionalGeneration", "T5EncoderModel", "T5Model")
    },
    only={**T5.only, "encoder_attention_type": "local"},
    unused=(*T5.unused, "local_radius", "global_block_size"),
    on_read=_read_longt5,
    on_write=_write_longt5,
)
"""The other kind of LongT5 attends to sums over blocks of tokens besides, which no field of the block expresses."""
