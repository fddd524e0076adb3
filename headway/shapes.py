"""The model that a recipe's shape stands for. No torch here."""

from __future__ import annotations

from typing import Literal

from headway.config import (
    InitConfig,
    LMHeadConfig,
    ModelConfig,
    PositionConfig,
    RelativeConfig,
    RopeConfig,
    StackConfig,
    TokensConfig,
)
from headway.recipe import ShapeConfig


def decoder_config(shape: ShapeConfig, vocab: int, length: int) -> ModelConfig:
    """GPT-2's block unless told otherwise, and its layout where that can say it."""
    return ModelConfig(
        decoder=_stack(shape, causal=True),
        target=TokensConfig(vocab=vocab, positions=_positions(shape, length), dropout=shape.dropout),
        lm=LMHeadConfig(tied=shape.tied),
        init=InitConfig(kind="residual"),
        family="gpt2",
    )


def encoder_config(shape: ShapeConfig, vocab: int, length: int) -> ModelConfig:
    """BERT's layout where norm_at = "post" says so: norms after the branches and after the embeddings, none at the end.

    Heads are the task's to add.
    """
    front = TokensConfig(
        vocab=vocab,
        positions=_positions(shape, length),
        segments=2,
        norm=shape.norm_at == "post",
        norm_eps=1e-12,
        dropout=shape.dropout,
    )
    return ModelConfig(encoder=_stack(shape, eps=1e-12), source=front, family="bert")


def _stack(shape: ShapeConfig, *, causal: bool = False, eps: float = 1e-5) -> StackConfig:
    width = shape.width or 64 * shape.depth
    where = shape.positions
    return StackConfig(
        d_model=width,
        n_layers=shape.depth,
        n_heads=shape.heads or max(1, width // 64),
        n_kv_heads=shape.kv_heads,
        d_ff=4 * width,
        causal=causal,
        norm=shape.norm,
        norm_at=shape.norm_at,
        norm_eps=eps,
        final_norm=causal or shape.norm_at == "pre",
        residual=shape.residual,
        activation=shape.activation,
        gated=shape.gated,
        qkv_bias=shape.bias,
        out_bias=shape.bias,
        ffn_bias=shape.bias,
        window=shape.window,
        rope=RopeConfig() if where == "rope" else None,
        relative=RelativeConfig() if where == "relative" else None,
        alibi=where == "alibi",
        dropout=shape.dropout,
        attention_dropout=shape.dropout,
    )


def _positions(shape: ShapeConfig, length: int) -> PositionConfig:
    where = shape.positions
    kind: Literal["none", "learned", "sinusoidal"] = "none"
    if where == "learned" or where == "sinusoidal":
        kind = where
    return PositionConfig(kind=kind, length=length)
