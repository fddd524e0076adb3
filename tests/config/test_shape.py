"""Shapes: the model that a recipe's keys stand for, in the layout of the family it belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.config.model import ModelConfig
from headway.config.recipe import ShapeConfig
from headway.config.shape import baseline_config, decoder_config, encoder_config
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
