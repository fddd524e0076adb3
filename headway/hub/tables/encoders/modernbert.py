"""The table of ModernBERT (Warner et al. 2024): rotary positions, gated networks, windows in most blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Family, Field, Head, Tensor, size_in, switch
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.decoders.heads import FULL, SLIDING, count_of, layer_types, set_layers
from headway.hub.tables.rope import rope_settings

_BASES = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}
_OURS = ("attention.qkv", "attention.out", "residual1.norm", "residual2.norm", "ffn.up", "ffn.down")
_THEIRS = ("attn.Wqkv", "attn.Wo", "attn_norm", "mlp_norm", "mlp.Wi", "mlp.Wo")


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    window = size_in({"local_attention": theirs.get("local_attention", 128)}, "local_attention") // 2 + 1
    every = size_in({"every": theirs.get("global_attn_every_n_layers", 3)}, "every")
    usual = [SLIDING if number % every else FULL for number in range(count_of(settings, "encoder"))]
    layers = [
        {"window": window if kind == SLIDING else None, "rope": _rope(settings, theirs, kind)}
        for kind in layer_types(settings, theirs, usual, "encoder")
    ]
    set_layers(settings, layers, "encoder")
    _read_heads(settings, theirs)


def _read_heads(settings: Config, theirs: Mapping[str, Any]) -> None:
    """All heads have the same layers before their output."""
    bias = switch(theirs, "classifier_bias", False)
    kind = _ACTIVATION.read(theirs)
    if "lm.tied" in settings:
        settings |= {"lm.transform": kind, "lm.dense_bias": bias}
        settings["lm.bias"] = "trained" if switch(theirs, "decoder_bias", True) else "none"
    for head in ("classify", "tag", "span"):
        if any(path.startswith(f"{head}.") for path in settings):
            settings |= {f"{head}.dense": kind, f"{head}.dense_bias": bias, f"{head}.dense_norm": True}
            settings[f"{head}.dropout"] = theirs.get("classifier_dropout") or 0.0
    if "classify.labels" in settings:
        settings["classify.pool"] = _POOL.read(theirs)


def _rope(settings: Config, theirs: Mapping[str, Any], kind: str) -> Config:
    """Rotary positions of the blocks of a kind: an entry of rope_parameters, or a base of its own in older files."""
    name, usual = _BASES[kind]
    tables = theirs.get("rope_parameters") or {}
    own = (tables.get(kind) or {}) if isinstance(tables, Mapping) else tables
    if not isinstance(own, Mapping):
        raise ConfigError("C002", f"config.json: rope_parameters = {short(tables)} should hold a table for each kind")
    base, length = theirs.get(name), settings["source.positions.length"]
    usual = usual if base is None else base
    return rope_settings({"target.positions.length": length}, {"rope_parameters": {"rope_theta": usual, **own}})


def _write(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None
    blocks = [config.encoder.layer(number) for number in range(config.encoder.n_layers)]
    theirs["layer_types"] = [FULL if block.window is None else SLIDING for block in blocks]
    theirs["local_attention"] = next((2 * (block.window - 1) for block in blocks if block.window), 128)
    theirs["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": block.rope.theta}
        for kind, block in zip(theirs["layer_types"], blocks, strict=True)
        if block.rope is not None
    }
    head = config.classify or config.tag or config.span
    if config.lm is not None:
        theirs |= {"decoder_bias": config.lm.bias == "trained", "classifier_bias": config.lm.dense_bias}
        theirs["classifier_activation"] = _ACTIVATION.write(config.lm.transform)
    elif head is not None:
        theirs |= {"classifier_bias": head.dense_bias, "classifier_dropout": head.dropout}
        theirs["classifier_activation"] = _ACTIVATION.write(head.dense)
    if config.classify is not None:
        theirs["classifier_pooling"] = _POOL.write(config.classify.pool)


_ACTIVATION = Field("classifier_activation", "", "gelu", ACTIVATIONS)
_POOL = Field("classifier_pooling", "", "cls", {"cls": "first", "mean": "mean"})


def _before(head: str) -> Config:
    return {f"{head}.dense": "gelu", f"{head}.dense_bias": False, f"{head}.dense_norm": True}


def _head(name: str, settings: Config, *, labels: str = "") -> Head:
    output = "decoder" if name == "lm" else "classifier"
    tensors = [Tensor(f"{name}.dense", "head.dense"), Tensor(f"{name}.output", output)]
    tensors.append(Tensor("lm.norm" if name == "lm" else f"{name}.dense_norm", "head.norm"))
    copies = {"decoder.weight": "{prefix}embeddings.tok_embeddings.weight"} if name == "lm" else {}
    return Head(settings, tuple(tensors), labels=labels, tied_copies=copies)


MODERNBERT = Family(
    name="modernbert",
    fields=(
        Field("vocab_size", "source.vocab", 50368),
        Field("hidden_size", "encoder.d_model", 768),
        Field("num_hidden_layers", "encoder.n_layers", 22),
        Field("num_attention_heads", "encoder.n_heads", 12),
        Field("intermediate_size", "encoder.d_ff", 1152),
        Field("hidden_activation", "encoder.activation", "gelu", ACTIVATIONS),
        Field("max_position_embeddings", "source.positions.length", 8192),
        Field("norm_eps", "encoder.norm_eps source.norm_eps", 1e-5),
        Field("norm_bias", "encoder.norm_bias source.norm_bias", False),
        Field("attention_bias", "encoder.qkv_bias encoder.out_bias", False),
        Field("attention_dropout", "encoder.attention_dropout", 0.0),
        Field("embedding_dropout", "source.dropout", 0.0),
        Field("mlp_bias", "encoder.ffn_bias", False),
        Field("mlp_dropout", "encoder.activation_dropout", 0.0),
    ),
    fixed={
        **{"encoder.first_norm": False, "encoder.gated": True},
        **{"source.kind": "tokens", "source.positions.kind": "none", "source.norm": True},
    },
    tensors=(
        Tensor("source.table", "embeddings.tok_embeddings"),
        Tensor("source.norm", "embeddings.norm"),
        *(Tensor(f"encoder.blocks.{{i}}.{a}", f"layers.{{i}}.{b}") for a, b in zip(_OURS, _THEIRS, strict=True)),
        Tensor("encoder.norm", "final_norm"),
    ),
    heads={
        "ModernBertModel": Head(prefix=""),
        "ModernBertForMaskedLM": _head("lm", {"lm.tied": True}),
        "ModernBertForSequenceClassification": _head(
            "classify", {"classify.labels": 2, **_before("classify")}, labels="classify.labels"
        ),
        "ModernBertForTokenClassification": _head("tag", {"tag.labels": 2, **_before("tag")}, labels="tag.labels"),
        "ModernBertForQuestionAnswering": _head("span", {"span.ffn": False, **_before("span")}),
    },
    prefix="model.",
    only={"tie_word_embeddings": True, "position_embedding_type": "absolute"},
    unused=(
        *("layer_types", "rope_parameters", "local_attention", "global_attn_every_n_layers"),
        *(name for name, _ in _BASES.values()),
        *("classifier_activation", "classifier_bias", "classifier_pooling", "decoder_bias"),
        *("cls_token_id", "sparse_prediction", "sparse_pred_ignore_index", "initializer_cutoff_factor"),
        *("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad", "layer_norm_eps"),
    ),
    special={"pad": 50283, "bos": 50281, "eos": 50282},
    on_read=_read,
    on_write=_write,
)
