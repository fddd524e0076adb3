"""The model that a run trains: new or pretrained, with the task's heads, adapters, frozen blocks."""

from __future__ import annotations

import functools

import torch
from torch.utils.checkpoint import checkpoint

from headway.baselines.build import make_model
from headway.config.baselines import AnyConfig, BaselineConfig
from headway.config.recipe import ShapeConfig
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import ConfigError
from headway.hub.adapter import is_adapter
from headway.hub.download import resolve
from headway.hub.folder import load_model, open_folder, read_tokenizer
from headway.model.heads import HEADS
from headway.model.lora import add_adapters
from headway.model.model import Model, Transformer
from headway.tasks.recipe import Recipe
from headway.tasks.registry import get_task
from headway.tasks.training import Training

TASK_HEADS = tuple(name for name, kind in HEADS.items() if not kind.vocabulary)
"""Heads that a task adds to a base. Beside adapters they are trained in full."""


def base_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """The tokenizer of model.from; None if the run trains its own, or reads no text."""
    if not recipe.model.from_ or get_task(recipe.task).takes != "text":
        return None
    return read_tokenizer(resolve(recipe.model.from_))


def build_model(recipe: Recipe, task: Training, device: torch.device) -> Model:
    """The model with its weights; those that do not train are frozen."""
    if recipe.model.lora and not recipe.model.from_:
        raise ConfigError("C004", f"model.lora = {recipe.model.lora} needs a pretrained model: set model.from")
    model = (_from_pretrained(recipe, task) if recipe.model.from_ else make_model(task.config(None))).to(device)
    _mark_trainable(model, recipe.model)
    if recipe.train.gradient_checkpointing:
        checkpoint_activations(model)
    return model


def meta_model(recipe: Recipe, task: Training) -> Model | None:
    """The model that `build_model` will make, without memory for its weights; None if only loading can tell."""
    base = resolve(recipe.model.from_) if recipe.model.from_ else None
    if base is not None and is_adapter(base):
        return None
    known = None if base is None else open_folder(base).config
    if known is not None and known.quantization != "none":  # `build_model` refuses it
        return None
    config = task.config(known)
    with torch.device("meta"):
        model = make_model(config)
        _mark_trainable(model, recipe.model)
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
    config = task.config(base.config)
    if config == base.config:
        return base.train()
    model, have = make_model(config), base.state_dict()
    state = model.state_dict()
    state |= {name: have[name] for name, tensor in state.items() if name in have and have[name].shape == tensor.shape}
    model.load_state_dict(state)
    return model


def _mark_trainable(model: Model, shape: ShapeConfig) -> None:
    """Add adapters and freeze what does not train."""
    if shape.lora:
        have = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
        if missing := [name for name in shape.lora_targets if name not in have]:
            listed = ", ".join(sorted(have - set(TASK_HEADS)))
            what = f"model.lora_targets: the model has no matrix {missing[0]!r}"
            raise ConfigError("C003", what, f"its matrices are {listed}")
        add_adapters(model, shape.lora, shape.lora_targets)
        for head in TASK_HEADS:
            if (module := getattr(model, head, None)) is not None:
                module.requires_grad_(True)
    check_freeze(model.config, shape.freeze)
    if shape.freeze:
        assert isinstance(model, Transformer)
        first = model.config.encoder is not None
        front, stack = (model.source, model.encoder) if first else (model.target, model.decoder)
        front.requires_grad_(False)
        for block in list(stack.blocks)[: shape.freeze]:
            block.requires_grad_(False)


def check_freeze(config: AnyConfig, freeze: int) -> None:
    """Refuse to freeze more blocks than the model has."""
    if not freeze:
        return
    if isinstance(config, BaselineConfig):
        raise ConfigError("C004", f"model.freeze = {freeze} needs a transformer, which has blocks to freeze")
    stack = config.encoder or config.decoder
    if stack is None or freeze > stack.n_layers:
        blocks = 0 if stack is None else stack.n_layers
        raise ConfigError("C003", f"model.freeze = {freeze}, but the model has {blocks} blocks")


def checkpoint_activations(model: Model) -> None:
    """Keep only each block's input, and compute the rest again in the backward pass (activation checkpointing)."""
    for stack in (getattr(model, "encoder", None), getattr(model, "decoder", None)):
        for block in stack.blocks if stack is not None else ():
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
