"""The table of MPNet (Song et al. 2020): BERT's block with T5's bias, positions and heads as in RoBERTa."""

from __future__ import annotations

from dataclasses import replace

from headway.hub.family import Tensor, with_defaults
from headway.hub.tables.bert import ROBERTA, block_of

_KEPT = tuple(
    entry for entry in ROBERTA.tensors if entry.ours in ("source.table", "source.positions.table", "source.norm")
)

MPNET = replace(
    ROBERTA,
    name="mpnet",
    fields=with_defaults(
        tuple(entry for entry in ROBERTA.fields if entry.theirs != "type_vocab_size"), vocab_size=30527
    ),
    fixed={**ROBERTA.fixed, "encoder.relative.buckets": 32, "encoder.relative.max_distance": 128},
    tensors=(
        *_KEPT,
        *block_of(
            "attention.attn.q|attention.attn.k|attention.attn.v",
            ("attention.attn.o", "attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
            "encoder.layer.{i}",
        ),
        Tensor("encoder.relative.table", "encoder.relative_attention_bias"),
    ),
    heads={name.replace("Roberta", "MPNet"): head for name, head in ROBERTA.heads.items()},
    prefix="mpnet.",
    only={"tie_word_embeddings": True, "relative_attention_num_buckets": 32, "pad_token_id": 1},
)
"""The code of `transformers` holds the number of buckets and the first position fast, whatever config.json says."""
