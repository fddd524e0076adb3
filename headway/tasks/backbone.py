"""The body that a task puts its head on: by the recipe's shape, or a trained one without the heads it has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.config.model import ModelConfig, SpecialTokens, TokensConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import encoder_config
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, DataError
from headway.hub.tables import FAMILIES
from headway.model.model import Model, Output
from headway.tasks.recipe import Recipe


def encoder_backbone(recipe: Recipe, tokenizer: Tokenizer, base: AnyConfig | None) -> ModelConfig:
    """A text encoder without heads that reads data.length tokens."""
    length, what = recipe.data.length, recipe.model.from_
    if base is None:
        special = SpecialTokens(pad=tokenizer.special.get("pad"))
        return replace(encoder_config(recipe.model, tokenizer.vocab_size, length), special=special)
    if (
        not isinstance(base, ModelConfig)
        or base.kind != "encoder"
        or base.source is None
        or base.source.kind != "tokens"
    ):
        raise ConfigError("C004", f"task {recipe.task} trains text encoders, model.from = {what} is none")
    check_context(base, length, what)
    return replace(base, lm=None, nsp=None, classify=None, tag=None, span=None, labels=())


def before_output(base: AnyConfig | None, head: str) -> dict[str, Any]:
    """What the base's family has before the output layer of a head: fields of the head's config."""
    family = FAMILIES.get(base.family) if isinstance(base, ModelConfig) else None
    for known in family.heads.values() if family else ():
        if known.labels == f"{head}.labels" or (head == "span" and "span.ffn" in known.settings):
            found = {path: value for path, value in known.settings.items() if path.startswith(f"{head}.dense")}
            return {path.partition(".")[2]: value for path, value in found.items()}
    return {}


def check_context(base: AnyConfig, length: int, what: str) -> None:
    """Refuse a data.length that model.from cannot read."""
    if base.max_length is not None and length > base.max_length:
        why = f"data.length = {length}, but {what} reads {base.max_length} tokens at most"
        raise ConfigError("C004", why, f"set data.length={base.max_length}, or less")


def limit_of(model: Model, length: int | None) -> int | None:
    """Tokens that are read of a text: as trained, and never more than the model knows."""
    longest = model.config.max_length
    return longest if length is None else length if longest is None else min(length, longest)


def run_backbone(model: Model, ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Output:
    """Hidden states of texts or pairs of texts; a model without a second segment (RoBERTa) is given none.

    The decoder of an encoder–decoder (BART) reads the same text, one token later, and its states are the result.
    """
    front = model.config.output_front
    if model.config.kind == "encoder-decoder":
        start = model.config.special.start
        if start is None:
            raise DataError("D001", "the decoder of this model has no start token in the config")
        later = torch.cat([torch.full_like(ids[:, :1], start), ids[:, :-1]], 1)
        both: Output = model(ids, later, attention_mask=attention_mask, target_attention_mask=attention_mask)
        return both
    typed = token_type_ids if isinstance(front, TokensConfig) and front.segments > 1 else None
    output: Output = model(ids, attention_mask=attention_mask, token_type_ids=typed)
    return output
