"""The table of ALBERT (Lan et al. 2020): BERT with one block for all layers, and embeddings of a width of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.hub.family import Config, Field, Head, Tensor, with_defaults
from headway.hub.tables.bert import BERT, block_of

_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
_BLOCK = block_of(
    "attention.query|attention.key|attention.value",
    ("attention.dense", "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm"),
    _LAYER,
)
_EMBED = tuple(entry for entry in BERT.tensors if entry.ours.startswith("source."))
_POOLER = Tensor("classify.dense", "{prefix}pooler")
_MLM = (
    Tensor("lm.dense", "predictions.dense"),
    Tensor("lm.norm", "predictions.LayerNorm"),
    Tensor("lm.output.bias", "predictions.bias"),
)
_COPIES = {
    "predictions.decoder.weight": "{prefix}embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}


def _head(of: str, *tensors: Tensor, **more: Any) -> Head:
    """A head of BERT with the names of ALBERT."""
    return replace(BERT.heads[of], tensors=tensors, **more)


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    assert BERT.on_read is not None
    dropout = theirs.get("classifier_dropout_prob", 0.1)
    BERT.on_read(settings, {**theirs, "classifier_dropout": dropout}, names)


def _write(theirs: Config, config: ModelConfig) -> None:
    head = config.classify or config.tag
    theirs["classifier_dropout_prob"] = head.dropout if head and config.labels else 0.1


_SIZES = {"vocab_size": 30000, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384}

ALBERT = replace(
    BERT,
    name="albert",
    fields=(
        *with_defaults(
            BERT.fields, hidden_act="gelu_new", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **_SIZES
        ),
        Field("embedding_size", "source.width", 128),
    ),
    fixed={**BERT.fixed, "encoder.shared": True},
    tensors=(
        *_EMBED,
        Tensor("source.project", "encoder.embedding_hidden_mapping_in"),
        *(replace(entry, ours=entry.ours.replace("{i}", "0")) for entry in _BLOCK),
    ),
    heads={
        "AlbertModel": _head("BertModel", _POOLER),
        "AlbertForMaskedLM": _head("BertForMaskedLM", *_MLM, tied_copies=_COPIES),
        "AlbertForPreTraining": _head(
            "BertForPreTraining",
            *_MLM,
            Tensor("nsp.dense", "{prefix}pooler"),
            Tensor("nsp.output", "sop_classifier.classifier"),
            tied_copies=_COPIES,
        ),
        "AlbertForSequenceClassification": _head(
            "BertForSequenceClassification", _POOLER, Tensor("classify.output", "classifier")
        ),
        "AlbertForTokenClassification": BERT.heads["BertForTokenClassification"],
        "AlbertForQuestionAnswering": BERT.heads["BertForQuestionAnswering"],
    },
    prefix="albert.",
    only={**BERT.only, "num_hidden_groups": 1, "inner_group_num": 1},
    unused=("classifier_dropout_prob", "net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"),
    unneeded=(*BERT.unneeded, "pooler.weight", "pooler.bias"),
    special={"pad": 0, "bos": 2, "eos": 3},
    on_read=_read,
    on_write=_write,
)
