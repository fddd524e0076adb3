"""Shapes: the model that a recipe's keys stand for, in the layout of the family it belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.config.model import ModelConfig, PatchesConfig, SparseConfig, SpecialTokens
from headway.config.recipe import ShapeConfig
from headway.config.shape import (
    baseline_config,
    decoder_config,
    encoder_config,
    seq2seq_config,
    towers_config,
    vision_config,
)
from headway.errors import ConfigError
from headway.hub.folder import describe
from headway.model.model import Transformer

SMALL = ShapeConfig(depth=2, width=32, heads=2)
LLAMA = replace(SMALL, positions="rope", norm="rmsnorm", gated=True, activation="silu", bias=False)
BERT = replace(SMALL, norm_at="post", activation="gelu")


@pytest.mark.parametrize(
    ("config", "family"),
    [
        (decoder_config(SMALL, 50, 16), "gpt2"),
        (decoder_config(LLAMA, 50, 16), "llama"),
        (decoder_config(replace(LLAMA, kv_heads=1, tied=False), 50, 16), "llama"),
        (decoder_config(replace(LLAMA, window=4), 50, 16), "mistral"),
        (decoder_config(replace(LLAMA, window=4, positions="alibi"), 50, 16), "headway"),
        (decoder_config(replace(LLAMA, sparse=1, random_blocks=1), 50, 16), "headway"),
        (decoder_config(replace(LLAMA, gated=False), 50, 16), "headway"),
        (decoder_config(replace(LLAMA, dropout=0.1), 50, 16), "headway"),
        (decoder_config(replace(SMALL, positions="rope"), 50, 16), "headway"),
        (decoder_config(replace(SMALL, scaled=False), 50, 16), "headway"),
        (encoder_config(BERT, 50, 16), "bert"),
        (encoder_config(replace(BERT, norm_at="pre"), 50, 16), "headway"),
    ],
)
def test_a_shape_is_saved_as_the_family_it_is(config: ModelConfig, family: str) -> None:
    assert describe(Transformer(config))[1]["model_type"] == family


def test_a_sparse_shape_is_a_pattern_with_room_in_its_sequences() -> None:
    """One key for encoders, decoders, translation and images; a pattern that hides nothing is an error with numbers."""
    shape = replace(SMALL, sparse=4, random_blocks=2)
    pattern = SparseConfig(block=4, random=2, seed=0)
    text = seq2seq_config(shape, 50, 37)
    assert isinstance(text, ModelConfig)
    for stack in (
        decoder_config(shape, 50, 25).output_stack,
        encoder_config(shape, 50, 37).output_stack,
        *(text.encoder, text.decoder),
        vision_config(replace(shape, patch=4), 28, 1).output_stack,
    ):
        assert stack is not None and stack.sparse == pattern
    assert encoder_config(replace(shape, random_blocks=0), 50, 37).output_stack.sparse == SparseConfig(
        block=4, random=0
    )
    for make, numbers in (
        (lambda: decoder_config(shape, 50, 24), "24 tokens, and sequences have 24"),
        (lambda: encoder_config(shape, 50, 36), "36 tokens, and sequences have 36"),
        (lambda: seq2seq_config(shape, 50, 36), "36 tokens, and sequences have 36"),
        (lambda: vision_config(replace(shape, patch=7), 28, 1), "36 tokens, and sequences have 17"),
        (lambda: decoder_config(replace(shape, sparse=64, random_blocks=99), 50, 512), "6,592 tokens"),
        (lambda: towers_config(shape, PatchesConfig(), 50, 99, SpecialTokens()), "for text and for the patches"),
    ):
        with pytest.raises(ConfigError, match=numbers) as caught:
            make()
        assert caught.value.code == "C004"


def test_what_the_dial_means() -> None:
    config = decoder_config(ShapeConfig(depth=3), 50, 16)
    stack = config.output_stack
    assert (stack.n_layers, stack.d_model, stack.n_heads, stack.d_ff) == (3, 192, 3, 768)
    assert config.max_length == 16 and decoder_config(LLAMA, 50, 16).max_length is None


def test_fixed_states_are_as_they_were_published() -> None:
    """The GRU's is read at every step, the others' starts the decoder; with attention there is no need of it."""
    made = {
        (kind, attention): baseline_config(replace(SMALL, kind=kind, attention=attention), 50, 16, reads=True).context
        for kind in ("elman", "gru", "lstm")
        for attention in ("none", "dot")
    }
    assert [key for key, context in made.items() if context] == [("gru", "none")]
    assert not baseline_config(replace(SMALL, kind="gru"), 50, 16).context


def test_attention_may_be_left_unscaled() -> None:
    """A factor of 1 in place of one over the root of a head's width."""
    scales = [decoder_config(replace(SMALL, scaled=scaled), 50, 16).output_stack.scale for scaled in (True, False)]
    assert scales == [None, 1.0]
