"""The table of NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and gated networks, without biases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from headway.config.model import ModelConfig
from headway.hub.family import Config, Field, Tensor, with_defaults
from headway.hub.tables.bert import BERT
from headway.hub.tables.rope import ROPE_FIELDS, rope_settings, write_rope

_OURS = ("attention.qkv", "attention.out", "residual1.norm", "residual2.norm", "ffn.up", "ffn.down")
_THEIRS = ("attn.Wqkv", "attn.out_proj", "norm1", "norm2", "mlp.fc12|mlp.fc11", "mlp.fc2")
_NAMES = {"embeddings.LayerNorm": "emb_ln"}


def _layer(names: str) -> str:
    return "|".join(f"encoder.layers.{{i}}.{name}" for name in names.split("|"))


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    assert BERT.on_read is not None
    BERT.on_read(settings, theirs, names)
    length = {"target.positions.length": settings["source.positions.length"]}
    rope = rope_settings(length, theirs, theta=1000.0)
    settings.update({f"encoder.rope.{name}": value for name, value in rope.items()})


def _write(theirs: Config, config: ModelConfig) -> None:
    assert BERT.on_write is not None and config.encoder is not None and config.encoder.rope is not None
    BERT.on_write(theirs, config)
    write_rope(theirs, config.encoder.rope)


NOMIC_BERT = replace(
    BERT,
    name="nomic_bert",
    fields=(
        *with_defaults(
            BERT.fields,
            vocab_size=30528,
            hidden_act="silu",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=2048,
        ),
        Field("head_dim", "encoder.d_head"),
    ),
    fixed={
        **BERT.fixed,
        **{f"encoder.{part}_bias": False for part in ("qkv", "out", "ffn")},
        **{"encoder.gated": True, "source.positions.kind": "none"},
    },
    tensors=(
        *(
            replace(entry, theirs=_NAMES.get(entry.theirs, entry.theirs))
            for entry in BERT.tensors
            if entry.ours in ("source.table", "source.segments", "source.norm")
        ),
        *(Tensor(f"encoder.blocks.{{i}}.{a}", _layer(b)) for a, b in zip(_OURS, _THEIRS, strict=True)),
    ),
    heads={
        "NomicBertModel": BERT.heads["BertModel"],
        "NomicBertForMaskedLM": replace(
            BERT.heads["BertForMaskedLM"],
            tensors=tuple(
                replace(entry, theirs=entry.theirs.replace("LayerNorm", "layer_norm"))
                for entry in BERT.heads["BertForMaskedLM"].tensors
            ),
        ),
        "NomicBertForSequenceClassification": BERT.heads["BertForSequenceClassification"],
        "NomicBertForTokenClassification": BERT.heads["BertForTokenClassification"],
    },
    prefix="nomic_bert.",
    unused=ROPE_FIELDS,
    on_read=_read,
    on_write=_write,
)
