"""The table of ELECTRA (Clark et al. 2020): BERT's block, embeddings of a width of their own, two kinds of heads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.hub.family import Config, Field, Head, Tensor, with_defaults
from headway.hub.tables.bert import BERT, ROBERTA

_SIZES = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    assert BERT.on_read is not None
    BERT.on_read(settings, theirs, names)
    if settings["source.width"] == settings["encoder.d_model"]:
        settings["source.width"] = None
    if "lm.transform" in settings:
        settings["lm.transform"] = "gelu"  # whatever the activation of the blocks
    if "tag.binary" in settings:
        settings["tag.dense"], settings["tag.dropout"] = settings["encoder.activation"], 0.0


def _write(theirs: Config, config: ModelConfig) -> None:
    assert BERT.on_write is not None and config.source is not None and config.source.kind == "tokens"
    BERT.on_write(theirs, config)
    theirs["embedding_size"] = config.source.width or config.output_stack.d_model


ELECTRA = replace(
    BERT,
    name="electra",
    fields=(*with_defaults(BERT.fields, **_SIZES), Field("embedding_size", "source.width", 128)),
    tensors=(*BERT.tensors, Tensor("source.project", "embeddings_project")),
    heads={
        "ElectraModel": Head(prefix=""),
        "ElectraForMaskedLM": Head(
            {"lm.tied": True, "lm.bias": "trained", "lm.transform": "gelu"},
            (
                Tensor("lm.dense", "generator_predictions.dense"),
                Tensor("lm.norm", "generator_predictions.LayerNorm"),
                Tensor("lm.output.bias", "generator_lm_head.bias"),
            ),
            tied_copies={"generator_lm_head.weight": "{prefix}embeddings.word_embeddings.weight"},
        ),
        "ElectraForPreTraining": Head(
            {"tag.labels": 2, "tag.binary": True, "labels": ["original", "replaced"]},
            (
                Tensor("tag.dense", "discriminator_predictions.dense"),
                Tensor("tag.output", "discriminator_predictions.dense_prediction"),
            ),
        ),
        "ElectraForSequenceClassification": Head(
            {"classify.labels": 2, "classify.dense": "gelu", "classify.pool": "first"},
            ROBERTA.heads["RobertaForSequenceClassification"].tensors,
            labels="classify.labels",
        ),
        "ElectraForTokenClassification": BERT.heads["BertForTokenClassification"],
        "ElectraForQuestionAnswering": BERT.heads["BertForQuestionAnswering"],
    },
    prefix="electra.",
    unused=("summary_last_dropout",),
    on_read=_read,
    on_write=_write,
)
