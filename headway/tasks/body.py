"""The encoder that a task puts its head on: by the recipe's shape, or a trained one without the heads it has."""

from __future__ import annotations

from dataclasses import replace

from headway.config import ModelConfig, SpecialTokens
from headway.data.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.recipe import Recipe
from headway.shapes import encoder_config


def encoder_body(recipe: Recipe, tokenizer: Tokenizer, base: ModelConfig | None) -> ModelConfig:
    """A text encoder without heads that reads data.length tokens."""
    length, what = recipe.data.length, recipe.model.from_
    if base is None:
        special = SpecialTokens(pad=tokenizer.special.get("pad"))
        return replace(encoder_config(recipe.model, tokenizer.vocab_size, length), special=special)
    if base.kind != "encoder" or base.source is None or base.source.kind != "tokens":
        raise ConfigError("C004", f"task {recipe.task} trains text encoders, model.from = {what} is none")
    if base.max_length is not None and length > base.max_length:
        raise ConfigError("C004", f"data.length = {length}, but {what} reads {base.max_length} tokens at most")
    return replace(base, lm=None, nsp=None, classify=None, tag=None, span=None, labels=())
