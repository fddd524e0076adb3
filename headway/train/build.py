"""The model that a run trains: new or pretrained, with the task's heads, adapters, frozen blocks."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint

from headway.baselines.build import make_model
from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import ShapeConfig
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError, NotFoundError
from headway.front.tokens import TokenEmbedding
from headway.hub.adapter import is_adapter
from headway.hub.download import resolve
from headway.hub.folder import load_folder_tokenizer, load_model, open_folder, read_tokenizer
from headway.hub.restored import fitted_model
from headway.hub.run_names import note
from headway.hub.trainable import mark_trainable
from headway.hub.vectors.header import vectors_header
from headway.hub.vectors.model import fill_embeddings
from headway.kernels.lora import add_adapters
from headway.model.model import Model
from headway.model.stack import Block
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task
from headway.tasks.training import Training


def base_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """The tokenizer of model.from; None if the run trains its own, or neither reads nor writes text."""
    if not recipe.model.from_:
        return None
    folder = resolve(recipe.model.from_)
    if get_task(recipe.task).takes == "text":
        return read_tokenizer(folder)
    return load_folder_tokenizer(folder, open_folder(folder).config)


def build_model(recipe: Recipe, task: Training, device: torch.device) -> Model:
    """The model with its weights; those that do not train are frozen."""
    if recipe.model.lora and not recipe.model.from_:
        raise ConfigError("C004", f"model.lora = {recipe.model.lora} needs a pretrained model: set model.from")
    model = _from_pretrained(recipe, task) if recipe.model.from_ else make_model(task.config(None))
    if recipe.model.embeddings:
        _start_from_vectors(recipe, model, task.tokenizer)
    model = model.to(device)
    mark_trainable(model, recipe.model)
    if recipe.train.gradient_checkpointing:
        checkpoint_activations(model)
    return model


def _start_from_vectors(recipe: Recipe, model: Model, tokenizer: Tokenizer | None) -> None:
    """Set the token embeddings of a new model to word vectors of a file."""
    path = recipe.model.embeddings
    if recipe.model.from_:
        raise ConfigError("C004", f"model.embeddings = {path} and model.from = {recipe.model.from_}: choose one")
    tables = [front for name in ("source", "target") if isinstance(front := getattr(model, name, None), TokenEmbedding)]
    if not tables or tokenizer is None:
        raise ConfigError("C004", f"model.embeddings = {path} is for models that read text")
    if vectors_header(path) is None:
        raise NotFoundError(
            "F001",
            f"model.embeddings = {path} is no file of word vectors",
            "export one: headway export M vectors.bin format=word2vec",
        )
    share = min(fill_embeddings(table, tokenizer, Path(path)) for table in tables)
    note(f"{path} has vectors for {share:.0%} of the vocabulary")


def base_config(recipe: Recipe) -> AnyConfig | None:
    """The config of model.from; None for a new model, and for an adapter, whose base only loading can tell."""
    base = resolve(recipe.model.from_) if recipe.model.from_ else None
    return None if base is None or is_adapter(base) else open_folder(base).config


def meta_model(recipe: Recipe, task: Training) -> Model | None:
    """The model that `build_model` will make, without memory for its weights; None if only loading can tell."""
    known = base_config(recipe)
    if recipe.model.from_ and known is None:
        return None
    if known is not None and known.quantization != "none":  # `build_model` refuses it
        return None
    config = task.config(known)
    with torch.device("meta"):
        model = make_model(config)
        mark_trainable(model, recipe.model)
    return model


def empty_model(config: AnyConfig, shape: ShapeConfig) -> Model:
    """The same modules on the meta device, to load gathered weights into."""
    with torch.device("meta"):
        model = make_model(config)
        if shape.lora:
            add_adapters(model, shape.lora, shape.lora_targets)
    return model


def _from_pretrained(recipe: Recipe, task: Training) -> Model:
    """The model of model.from with the heads that the task needs; heads that it does not have start from the seed."""
    # Trained weights are float32: an update is smaller than the gaps between half-precision numbers.
    base = load_model(resolve(recipe.model.from_), None if recipe.model.lora else torch.float32)
    if base.config.quantization != "none":
        why = f"model.from = {recipe.model.from_} has {base.config.quantization} weights, which cannot be trained"
        raise ConfigError("C004", why, "set model.from to the model that it was exported from")
    return fitted_model(base, task.config(base.config)).train()


def checkpoint_activations(model: Model) -> None:
    """Keep only each block's input, and compute the rest again in the backward pass (activation checkpointing)."""
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)  # type: ignore[method-assign]
