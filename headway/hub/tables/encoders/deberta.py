"""The table of DeBERTa-v2 and -v3 (He et al. 2021): BERT with attention to distances in place of positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.config.toml import short
from headway.errors import ConfigError
from headway.hub.family import Config, Tensor, size_in, switch, with_defaults
from headway.hub.tables.bert import ACTIVATIONS, BERT, block_of

_BOTH = {"c2p", "p2c"}
_SIZES = {"hidden_size": 1536, "num_hidden_layers": 24, "num_attention_heads": 24, "intermediate_size": 6144}

_UNUSED_HEADS = (
    *(f"lm_predictions.lm_head{part}" for part in ("", ".dense", ".LayerNorm")),
    *(f"mask_predictions.{part}" for part in ("dense", "LayerNorm", "classifier")),
)
"""Of the first files of DeBERTa-v3, which hold the heads of its pretraining under names of their own."""


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    assert BERT.on_read is not None
    BERT.on_read(settings, {**theirs, "classifier_dropout": theirs.get("cls_dropout")}, names)
    said = theirs.get("pos_att_type") or []
    kinds = said.lower().replace(" ", "").split("|") if isinstance(said, str) else said
    if not isinstance(kinds, list) or set(map(str, kinds)) not in (set(), _BOTH):
        raise ConfigError("C022", f"config.json: pos_att_type = {short(said)}; headway knows c2p and p2c together")
    heads, width = size_in(settings, "encoder.n_heads"), size_in(settings, "encoder.d_model")
    if kinds:
        settings["encoder.scale"] = (3 * width / heads) ** -0.5
    if switch(theirs, "relative_attention", False):
        _read_distances(settings, theirs, bool(kinds))
    if not switch(theirs, "position_biased_input", True):
        settings["source.positions.kind"] = "none"
    if "classify.labels" in settings:
        act = theirs.get("pooler_hidden_act", "gelu")
        if act not in ACTIVATIONS or theirs.get("pooler_hidden_size", width) != width:
            raise ConfigError("C022", f"config.json: a pooler of {short(act)}; headway knows {', '.join(ACTIVATIONS)}")
        settings["classify.dense"] = ACTIVATIONS[act]


def _read_distances(settings: Config, theirs: Mapping[str, Any], both: bool) -> None:
    if not both or not switch(theirs, "share_att_key", False):
        what = "config.json: relative_attention without share_att_key, or without pos_att_type = p2c|c2p"
        raise ConfigError("C022", what, "headway supports distances that share the projections of tokens")
    norm = theirs.get("norm_rel_ebd", "none")
    if norm not in ("none", "layer_norm"):
        raise ConfigError("C022", f"config.json: norm_rel_ebd = {short(norm)}; headway knows none and layer_norm")
    longest, buckets = theirs.get("max_relative_positions", -1), theirs.get("position_buckets", -1)
    if type(longest) is int and longest < 1:
        longest = settings["source.positions.length"]
    settings["encoder.distances.max_distance"] = longest
    settings["encoder.distances.buckets"] = max(0, buckets) if type(buckets) is int else buckets
    settings["encoder.distances.norm"] = norm == "layer_norm"


def _write(theirs: Config, config: ModelConfig) -> None:
    assert config.encoder is not None and config.source is not None and config.source.kind == "tokens"
    distances, head = config.encoder.distances, config.classify
    theirs |= {"relative_attention": distances is not None, "share_att_key": distances is not None}
    theirs["pos_att_type"] = ["p2c", "c2p"] if config.encoder.scale is not None else []
    theirs["position_biased_input"] = config.source.positions.kind == "learned"
    if distances is not None:
        theirs |= {"max_relative_positions": distances.max_distance, "position_buckets": distances.buckets or -1}
        theirs["norm_rel_ebd"] = "layer_norm" if distances.norm else "none"
    if head is not None:
        theirs["pooler_hidden_act"] = next((name for name, ours in ACTIVATIONS.items() if ours == head.dense), "gelu")
    both = head or config.tag
    theirs["cls_dropout"] = both.dropout if both else None


DEBERTA = replace(
    BERT,
    name="deberta-v2",
    fields=with_defaults(BERT.fields, vocab_size=128100, type_vocab_size=0, layer_norm_eps=1e-7, **_SIZES),
    tensors=(
        *(entry for entry in BERT.tensors if entry.ours.startswith("source.")),
        *block_of(
            "attention.self.query_proj|attention.self.key_proj|attention.self.value_proj",
            (
                *("attention.output.dense", "attention.output.LayerNorm"),
                *("intermediate.dense", "output.dense", "output.LayerNorm"),
            ),
            "encoder.layer.{i}",
        ),
        Tensor("encoder.distances.table", "encoder.rel_embeddings"),
        Tensor("encoder.distances.norm", "encoder.LayerNorm"),
    ),
    heads={
        "DebertaV2Model": replace(BERT.heads["BertModel"], settings={}, tensors=()),
        "DebertaV2ForMaskedLM": BERT.heads["BertForMaskedLM"],
        "DebertaV2ForSequenceClassification": replace(
            BERT.heads["BertForSequenceClassification"],
            settings={"classify.labels": 2, "classify.dense": "gelu", "classify.pool": "first"},
            tensors=(Tensor("classify.dense", "pooler.dense"), Tensor("classify.output", "classifier")),
        ),
        "DebertaV2ForTokenClassification": BERT.heads["BertForTokenClassification"],
        "DebertaV2ForQuestionAnswering": BERT.heads["BertForQuestionAnswering"],
    },
    prefix="deberta.",
    only={"tie_word_embeddings": True, "legacy": True, "conv_kernel_size": 0},
    unused=(
        *("relative_attention", "max_relative_positions", "position_buckets", "norm_rel_ebd", "share_att_key"),
        *("pos_att_type", "position_biased_input", "pooler_hidden_act", "pooler_hidden_size", "pooler_dropout"),
        *("cls_dropout", "conv_act"),
    ),
    unneeded=(
        *("position_ids", "embeddings.position_embeddings.weight"),
        *(f"{part}.{kind}" for part in _UNUSED_HEADS for kind in ("weight", "bias")),
    ),
    on_read=_read,
    on_write=_write,
)
