"""What a model sees of training examples: tokens, crops, spectrograms, as they arrive at its front ends.

The loss of a task is computed once, on a model that is one block deep, and hooks look at what its front ends are given.
So augmentation, padding and special tokens are in it, for every task, also one of another package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headway.baselines.build import make_model
from headway.data.images.heatmap import coloured, spread
from headway.data.images.png import enlarged
from headway.data.tokenizers.tokenizer import Tokenizer
from headway.errors import HeadwayError, counted
from headway.front.patches import PatchEmbedding
from headway.front.sounds import FrameEmbedding, SampleEmbedding
from headway.front.tokens import TokenEmbedding
from headway.model.model import Model
from headway.studio.data.look import image_url
from headway.tasks.batch import Batch
from headway.tasks.losses.tokens import IGNORE
from headway.tasks.registry import get_task
from headway.tasks.training import Training
from headway.train.build import base_config

FRONTS = {TokenEmbedding: "tokens", PatchEmbedding: "picture", FrameEmbedding: "spectrogram", SampleEmbedding: "wave"}
FAILURES = (HeadwayError, RuntimeError, ValueError, TypeError, AttributeError)
"""What a loss may raise on a model that is not whole; RuntimeError includes tasks that have no loss."""
Seen = list[tuple[str, str, Tensor]]
"""Name, kind and input of each front end."""
TOKENS, POINTS, CHANNELS, NUMBERS = 600, 600, 8, 12
"""The most tokens, points of a curve, curves of a table and numbers of an example that are shown."""
SIDE = 128
"""Pixels that a picture has at least."""


def views(training: Training, samples: np.ndarray[Any, np.dtype[np.int64]]) -> list[list[dict[str, Any]]]:
    """What the model sees of each of these samples."""
    batch = training.batch(samples)
    model = _shallow_model(training) if training.by_gradient else None
    seen = [] if model is None else _seen(training, model, batch)
    wanted, first = training.wanted(batch), batch.tensors[0]
    if not seen and wanted is not None and first is not None and first.shape == wanted.shape:
        seen = [("source", "tokens", first)]
    names = tuple(map(str, getattr(getattr(model, "config", None), "labels", None) or ()))
    last = max((i for i, (_, kind, _) in enumerate(seen) if kind == "tokens"), default=-1)
    whole = [value for value in batch.tensors if value is not None and value.shape[:1] == (len(samples),)]
    labels = [] if wanted is not None else _labels(names, whole, len(samples))
    found = []
    for row in range(len(samples)):
        shown: list[dict[str, Any]] = []
        for i, (name, kind, value) in enumerate(seen):
            if kind == "tokens":
                target = wanted[row] if i == last and wanted is not None else None
                writes = len(seen) > 1 and name.endswith("target")
                shown.append(_tokens(training, value[row], target, names, writes=writes))
            elif row < len(value):
                shown.append(_heard_or_seen(kind, value[row].float().numpy()))
        shown = shown or [_numbers(value[row].float().numpy()) for value in whole]
        found.append([*shown, *({"kind": "label", "name": "label", "text": each} for each in labels[row : row + 1])])
    return found


def _shallow_model(training: Training) -> Model:
    """A model with the front ends of the run and one block."""
    config = training.config(base_config(training.recipe))
    with suppress(HeadwayError, ValueError, TypeError, AssertionError):
        return make_model(_shallow(config))
    return make_model(config)


def _shallow(config: Any) -> Any:
    """A config whose stacks have one layer each."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return config
    changed = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        inner = 1 if field.name == "n_layers" else _shallow(value)
        if inner is not value:
            changed[field.name] = inner
    return dataclasses.replace(config, **changed) if changed else config


def _seen(training: Training, model: Model, batch: Batch) -> Seen:
    """What arrives at the front ends while the loss is computed. A loss that fails later has shown all by then."""
    seen: Seen = []
    handles = []
    for name, module in model.named_modules():
        if (kind := FRONTS.get(type(module))) is not None:

            def look(_: nn.Module, given: tuple[Any, ...], *, name: str = name, kind: str = kind) -> None:
                if given and isinstance(given[0], Tensor) and all(each[0] != name for each in seen):
                    seen.append((name, kind, given[0].detach().clone()))

            handles.append(module.register_forward_pre_hook(look))
    try:
        with torch.no_grad(), suppress(*FAILURES):
            model.train()
            training.loss(model, *batch.tensors, *training.carry(model))
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _labels(names: Sequence[str], whole: Sequence[Tensor], count: int) -> list[str]:
    """The label of each sample, where the model has labels and the batch a number for each sample."""
    for value in whole:
        numbers = value.tolist() if value.shape == (count,) and value.dtype == torch.int64 else []
        if numbers and set(numbers) <= set(range(len(names))):
            return [names[i] for i in numbers]
    return []


def _tokens(
    training: Training, ids: Tensor, wanted: Tensor | None, names: Sequence[str], *, writes: bool
) -> dict[str, Any]:
    """Token ids with their texts; which tokens the loss is about, and where it wants another one."""
    tokenizer = training.tokenizer and (training.tokenizer.target if writes else training.tokenizer)
    numbers = [int(i) for i in ids]
    targets = [IGNORE] * len(numbers) if wanted is None else [int(i) for i in wanted]
    pairs = list(zip(targets[:-1], numbers[1:], strict=True))
    next_token = wanted is not None and all(target in (IGNORE, after) for target, after in pairs)
    if next_token:  # a token counts where it is predicted, which is one place earlier
        counts = [False, *(target != IGNORE for target in targets[:-1])]
        more = [targets[-1]] if targets and targets[-1] != IGNORE else []
        numbers, counts, targets = [*numbers, *more], [*counts, *[True for _ in more]], []
    else:
        counts = [target != IGNORE for target in targets]
    pad = tokenizer.special.get("pad") if tokenizer else None
    real = len(numbers)
    while real and numbers[real - 1] == pad and not counts[real - 1]:
        real -= 1
    texts = _texts(tokenizer, numbers[: min(real, TOKENS)])
    shown: list[dict[str, Any]] = [
        {"id": i, "text": text, "counts": count}
        for i, text, count in zip(numbers, texts, counts[: len(texts)], strict=False)
    ]
    for token, target in zip(shown, targets, strict=False):
        if target != IGNORE:
            of_labels = not get_task(training.recipe.task).predicts_tokens and target < len(names)
            token["wanted"] = names[target] if of_labels else _texts(tokenizer, [target])[0]
    return {
        "kind": "tokens",
        "name": "writes" if writes else "reads",
        "tokens": shown,
        "padding": len(numbers) - real,
        "left_out": max(0, real - TOKENS),
        "counted": sum(counts),
        "asks": wanted is not None,
        "next": next_token,
    }


def _texts(tokenizer: Tokenizer | None, ids: Sequence[int]) -> list[str]:
    return [str(i) for i in ids] if tokenizer is None else tokenizer.shown(ids)


def _heard_or_seen(kind: str, value: Any) -> dict[str, Any]:
    """Samples, an image (channels, height, width), or a spectrogram (1, bands, time) or (bands, time)."""
    if kind == "wave":
        return {"kind": "curves", "name": f"{len(value):,} samples", "curves": [_thinned(value)]}
    if value.ndim == 3 and value.shape[0] == 1 and value.shape[1] != value.shape[2]:
        value = value[0]
    if value.ndim == 2:
        pixels = coloured(spread(value[::-1]))  # low bands below
        name = f"{value.shape[0]} bands × {value.shape[1]} frames"
        return {"kind": "spectrogram", "name": name, "image": _url(pixels)}
    low, high = float(value.min()), float(value.max())
    bytes_ = ((value - low) / max(high - low, 1e-9) * 255).round().astype(np.uint8)
    pixels = bytes_[0] if len(bytes_) == 1 else bytes_[:3].transpose(1, 2, 0)
    name = f"{value.shape[2]} × {value.shape[1]} pixels, {'grey' if len(value) == 1 else 'colour'}"
    return {"kind": kind, "name": name, "image": _url(pixels), "range": [low, high]}


def _url(pixels: Any) -> str:
    return image_url(np.ascontiguousarray(enlarged(pixels, SIDE)))


def _thinned(values: Any) -> list[float]:
    """A curve with its extremes, in few points."""
    if len(values) <= POINTS:
        return [float(v) for v in values]
    parts = np.array_split(values, POINTS // 2)
    return [float(v) for part in parts for v in (part.min(), part.max())]


def _numbers(values: Any) -> dict[str, Any]:
    """Any other tensor: curves over time if it is a table, or its first numbers."""
    if values.ndim == 2 and 1 <= values.shape[1] <= CHANNELS < values.shape[0]:
        curves = [_thinned(values[:, i]) for i in range(values.shape[1])]
        name = f"{counted(values.shape[0], 'times')}, {counted(values.shape[1], 'columns')}"
        return {"kind": "curves", "name": name, "curves": curves}
    first = [float(f"{v:.4g}") for v in values.reshape(-1)[:NUMBERS]]
    return {"kind": "numbers", "name": " × ".join(map(str, values.shape)) or "one number", "first": first}
