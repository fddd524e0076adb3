"""The table of Moonshine (Jeffries et al. 2024)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headway.config.model import ModelConfig
from headway.hub.family import Config, Family, Field, Head, Tensor, read_tied
from headway.hub.tables.bert import ACTIVATIONS
from headway.hub.tables.rope import ROPE_FIELDS, SHARE, read_rope, write_rope
from headway.hub.tables.seq2seq import sides

_PARTS = {"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "num_key_value_heads": "n_kv_heads"}


def _side(side: str) -> Iterator[Tensor]:
    ours, theirs = f"{side}.blocks.{{i}}", f"{side}.layers.{{i}}"
    norms = ["input_layernorm", "post_attention_layernorm", "final_layernorm"]
    yield Tensor(f"{ours}.attention.qkv", "|".join(f"{theirs}.self_attn.{p}_proj" for p in "qkv"), "pairs")
    yield Tensor(f"{ours}.attention.out", f"{theirs}.self_attn.o_proj")
    yield Tensor(f"{ours}.residual1.norm", f"{theirs}.{norms.pop(0)}")
    if side == "decoder":
        yield Tensor(f"{ours}.cross.q", f"{theirs}.encoder_attn.q_proj")
        yield Tensor(f"{ours}.cross.kv", "|".join(f"{theirs}.encoder_attn.{p}_proj" for p in "kv"))
        yield Tensor(f"{ours}.cross.out", f"{theirs}.encoder_attn.o_proj")
        yield Tensor(f"{ours}.residual_cross.norm", f"{theirs}.{norms.pop(0)}")
    yield Tensor(f"{ours}.residual2.norm", f"{theirs}.{norms.pop(0)}")
    yield Tensor(f"{ours}.ffn.up", f"{theirs}.mlp.fc1", "swapped" if side == "decoder" else "")
    yield Tensor(f"{ours}.ffn.down", f"{theirs}.mlp.fc2")


def _read(settings: Config, theirs: Mapping[str, Any], names: Collection[str]) -> None:
    read_rope(settings, theirs, partial=0.9, stacks=("encoder", "decoder"))
    read_tied(settings, theirs, True)


def _write(theirs: Config, config: ModelConfig) -> None:
    assert config.decoder is not None and config.decoder.rope is not None
    write_rope(theirs, config.decoder.rope)
    theirs[SHARE] = config.decoder.rope.partial
    theirs["tie_word_embeddings"] = config.lm.tied if config.lm else True


MOONSHINE = Family(
    name="moonshine",
    fields=(
        Field("vocab_size", "target.vocab", 32768),
        Field("hidden_size", sides("d_model"), 288),
        Field("intermediate_size", sides("d_ff"), 1152),
        *(
            Field(f"{side}_{theirs}", f"{side}.{ours}", {"n_layers": 6, "n_heads": 8}.get(ours))
            for side in ("encoder", "decoder")
            for theirs, ours in _PARTS.items()
        ),
        Field("encoder_hidden_act", "encoder.activation", "gelu", ACTIVATIONS),
        Field("decoder_hidden_act", "decoder.activation", "silu", ACTIVATIONS),
        Field("max_position_embeddings", "target.positions.length", 512),
        Field("attention_bias", sides("qkv_bias"), False),
        Field("attention_dropout", sides("attention_dropout"), 0.0),
    ),
    fixed={
        **{f"{side}.{switch}": False for side in ("encoder", "decoder") for switch in ("norm_bias", "out_bias")},
        **{"decoder.causal": True, "decoder.cross": True, "decoder.gated": True},
        **{"source.kind": "samples", "target.kind": "tokens", "target.positions.kind": "none"},
    },
    tensors=(
        *(Tensor(f"source.conv{i}", f"encoder.conv{i}") for i in (1, 2, 3)),
        Tensor("source.norm", "encoder.groupnorm"),
        Tensor("target.table", "decoder.embed_tokens"),
        *_side("encoder"),
        *_side("decoder"),
        Tensor("encoder.norm", "encoder.layer_norm"),
        Tensor("decoder.norm", "decoder.norm"),
    ),
    heads={
        "MoonshineForConditionalGeneration": Head(
            {"lm.tied": True},
            (Tensor("lm.output.weight", "proj_out.weight"),),
            tied_copies={"proj_out.weight": "{prefix}decoder.embed_tokens.weight"},
        ),
        "MoonshineModel": Head(prefix=""),
    },
    prefix="model.",
    aliases={**{theirs: f"decoder_{theirs}" for theirs in _PARTS}, "hidden_act": "decoder_hidden_act"},
    unused=("tie_word_embeddings", "pad_head_dim_to_multiple_of", SHARE, *ROPE_FIELDS),
    special={"bos": 1, "eos": 2, "start": 1},
    on_read=_read,
    on_write=_write,
)
