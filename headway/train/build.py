"""The model that a run trains: from nothing, or from one that knows something already."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch.utils.checkpoint import checkpoint

from headway.config import ModelConfig, SpecialTokens
from headway.data.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.hub.download import resolve
from headway.hub.folder import load_model, read_tokenizer
from headway.model.lowrank import add_adapters
from headway.model.model import Model
from headway.recipe import Recipe, ShapeConfig, decoder_config


def base_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """The tokenizer of model.from; None where the run is to train one of its own."""
    if not recipe.model.from_:
        return None
    return read_tokenizer(resolve(recipe.model.from_))


def build_model(recipe: Recipe, tokenizer: Tokenizer, device: torch.device) -> Model:
    """With the weights that are to be trained marked as such."""
    if recipe.model.lora and not recipe.model.from_:
        raise ConfigError("C004", f"model.lora = {recipe.model.lora} adapts a trained model: model.from says which")
    if recipe.model.from_:
        model = _loaded(recipe)
    else:
        config = decoder_config(recipe.model, tokenizer.vocab_size, recipe.data.length)
        special = SpecialTokens(pad=tokenizer.special.get("pad"), eos=tokenizer.special.get("eos"))
        model = Model(replace(config, special=special))
    model = model.to(device)
    _choose_weights(model, recipe.model)
    if recipe.train.checkpointing:
        recompute_blocks(model)
    return model


def empty_model(config: ModelConfig, shape: ShapeConfig) -> Model:
    """The same modules without weights: a place to put them."""
    with torch.device("meta"):
        model = Model(config)
        if shape.lora:
            add_adapters(model, shape.lora, shape.lora_targets)
    return model


def _loaded(recipe: Recipe) -> Model:
    what, length = recipe.model.from_, recipe.data.length
    # What trains is kept in float32: steps are smaller than the gaps between half-precision numbers.
    model = load_model(resolve(what), None if recipe.model.lora else torch.float32)
    if model.config.kind != "decoder" or model.config.lm is None:
        raise ConfigError("C004", f"task lm trains decoders, model.from = {what} is an {model.config.kind}")
    if model.config.max_length is not None and length > model.config.max_length:
        raise ConfigError("C004", f"data.length = {length}, but {what} reads {model.config.max_length} tokens at most")
    return model


def _choose_weights(model: Model, shape: ShapeConfig) -> None:
    if shape.lora:
        if not add_adapters(model, shape.lora, shape.lora_targets):
            raise ConfigError("C003", f"model.lora_targets = {list(shape.lora_targets)}: the model has none of these")
        return
    if shape.freeze:
        blocks = model.decoder.blocks
        if shape.freeze > len(blocks):
            raise ConfigError("C003", f"model.freeze = {shape.freeze}, but the model has {len(blocks)} blocks")
        model.target.requires_grad_(False)
        for block in list(blocks)[: shape.freeze]:
            block.requires_grad_(False)


def recompute_blocks(model: Model) -> None:
    """Keep only what goes into each block, and compute the rest again when gradients ask for it."""
    for stack in (getattr(model, "encoder", None), getattr(model, "decoder", None)):
        for block in stack.blocks if stack is not None else ():
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
