"""A checkpoint as a model: the weights that its run would end with if it ended there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.baselines.build import make_model
from headway.config.model import PatchesConfig
from headway.config.networks.kinds import AnyConfig, kind_of_config
from headway.config.recipe import ShapeConfig
from headway.config.toml import build
from headway.errors import DamagedError, DataError, NotFoundError
from headway.front.patches import PatchEmbedding, resampled
from headway.hub.checkpoint import SUFFIX, checkpoints_of, last_weights, newest_sound, read_tensors, verify
from headway.hub.convert import tie_weights
from headway.hub.download import run_base
from headway.hub.run_names import is_checkpoint, is_running, is_unfinished, note, run_of, step_of, unfinished_note
from headway.hub.trainable import frozen_digest, frozen_weights, mark_trainable, trainable_weights
from headway.hub.weights import file_order
from headway.joint.distillation import Student
from headway.joint.towers import TwoTowers
from headway.jsonfile import show
from headway.kernels.lora import merge_adapters
from headway.model.model import Model, Transformer

LoadBase = Callable[[Path, torch.dtype | None], Model]
"""Loads the model that a run started from."""
COPIES = ("best", "mean", "model")
"""Files of weights in a checkpoint, those that a run ends with first: of the best evaluation, averaged, the last."""


class TensorSource:
    """Tensors in memory, in the order of the file that they would be written to."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(file_order(tensors))

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    @property
    def total_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        return str(self._tensors[name].dtype).removeprefix("torch.")

    def read(self, name: str) -> Tensor:
        return self._tensors[name]

    def fill(self, name: str, out: Tensor) -> None:
        out.copy_(self._tensors[name].reshape(out.shape))


def is_restorable(place: Path) -> bool:
    """Whether the model of a folder is in a checkpoint: it is one, or a run that did not finish."""
    return is_checkpoint(place) or is_unfinished(place)


def restored_model(place: Path, load_base: LoadBase) -> tuple[int, Model]:
    """The step and the model of a checkpoint, or of the newest sound one of a run that did not finish.

    Nothing is written: another process may train the run meanwhile.
    """
    if is_checkpoint(place):
        return step_of(place), _build(place, *_read(place), load_base).finished()

    def read(path: Path) -> tuple[Path, dict[str, Any], dict[str, Tensor]]:
        return path, *_read(path)

    def skipped(path: Path, why: str) -> None:
        note(f"checkpoint {path} is not used: {why}")

    if (found := newest_sound(checkpoints_of(place), read, skipped=skipped)) is None:
        state = "has not saved a checkpoint yet" if is_running(place) else "stopped before its first checkpoint"
        hint = "wait for it; train.save_every sets when" if is_running(place) else f"headway train --resume {place}"
        raise NotFoundError("F002", f"{show(place)} {state}, so there is no model", hint)
    note(unfinished_note(place, step_of(found[0])))
    return step_of(found[0]), _build(*found, load_base).finished()


def average_weights(checkpoints: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in double precision."""
    return {
        name: torch.stack([weights[name].double() for weights in checkpoints]).mean(0).to(tensor.dtype)
        for name, tensor in checkpoints[0].items()
    }


def fitted_model(base: Model, config: AnyConfig) -> Model:
    """The base model with another config: weights of the same name and shape are kept, others start from the seed."""
    if config == base.config:
        return base
    tower = base.image if isinstance(base, TwoTowers) else base
    front, wanted = getattr(tower, "source", None), getattr(config, "source", None)
    if isinstance(front, PatchEmbedding) and isinstance(wanted, PatchesConfig) and front.config.image != wanted.image:
        resize_images(tower, wanted.image)
    model, have = make_model(config), base.state_dict()
    state = model.state_dict()
    state |= {name: have[name] for name, tensor in state.items() if name in have and have[name].shape == tensor.shape}
    model.load_state_dict(state)
    if isinstance(model, Student):
        model.distill.start(model)
    return model


@torch.no_grad()
def resize_images(model: Model, image: int) -> Model:
    """Change a vision model in place to square images of another size: its grid of positions is resampled once."""
    front = getattr(model, "source", None)
    if not isinstance(front, PatchEmbedding):
        raise DataError("D001", "only a model that reads images has an image size")
    config = replace(front.config, image=image)
    if front.positions is not None:
        side = config.image // config.patch
        front.positions = nn.Parameter(resampled(front.positions, side, config.leading))
    front.config = config
    assert isinstance(model, Transformer)
    model.config = replace(model.config, source=config)
    return model


def own_config(values: Mapping[str, Any]) -> AnyConfig:
    """The config of any kind of model from plain values."""
    return build(kind_of_config(values), values)


def check_saved(weights: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Check that a checkpoint has every weight, in its shape."""
    changed = "the recipe or the data have changed: restore them, or start a new run"
    for name, tensor in weights.items():
        if name not in saved:
            raise DamagedError("X002", f"the checkpoint has no tensor {name}", changed)
        if saved[name].shape != tensor.shape:  # copy_ would broadcast a smaller tensor
            shapes = f"{list(saved[name].shape)}, the model's {list(tensor.shape)}"
            raise DamagedError("X003", f"the checkpoint's {name} has the shape {shapes}", changed)


def other_base() -> DamagedError:
    """The error for a base model that is not the one that the run began with."""
    what = "the frozen weights of model.from differ from those that the run began with"
    return DamagedError("X008", what, "restore that model, or start a new run")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The state of a checkpoint, and the weights that its run would end with: best, averaged, or last."""
    manifest = verify(path, COPIES)
    files, origin = manifest["files"], manifest["state"].get("origin") or {}
    if average := origin.get("recipe", {}).get("train", {}).get("average", 0):
        return manifest["state"], average_weights(last_weights(path, average))
    stem = next(stem for stem in COPIES if f"{stem}{SUFFIX}" in files)
    return manifest["state"], read_tensors(path, stem)


def _build(path: Path, state: dict[str, Any], weights: dict[str, Tensor], load_base: LoadBase) -> Model:
    """The model of a checkpoint."""
    if not (origin := state.get("origin")):
        what = f"{show(path)} is from an older headway, which did not record the model"
        raise NotFoundError("F002", what, f"finish the run: headway train --resume {run_of(path)}")
    recipe, config = origin["recipe"], own_config(origin["model"])
    shape = build(ShapeConfig, recipe["model"])
    with torch.device("meta"):
        model = make_model(config)
    if dict(model.named_parameters()).keys() <= weights.keys():
        check_saved(dict(model.named_parameters()), weights)
        model.load_state_dict(weights, assign=True, strict=False)  # tied weights are in the state once
        tie_weights(model)
    else:
        model = _beside_frozen(path, config, shape, weights, recipe["seed"], load_base)
        if frozen_digest(frozen_weights(model)) != state["progress"]["base"]:
            raise other_base()
        merge_adapters(model)
    return model.eval()


@torch.no_grad()
def _beside_frozen(
    path: Path, config: AnyConfig, shape: ShapeConfig, weights: dict[str, Tensor], seed: int, load_base: LoadBase
) -> Model:
    """The model as its run built it, from its base or from the seed, with the trained weights of the checkpoint."""
    base = run_base(run_of(path))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if base is None:
            model = make_model(config)
        else:
            model = fitted_model(load_base(base, None if shape.lora else torch.float32), config)
        mark_trainable(model, shape)
    trained = trainable_weights(model)
    check_saved(trained, weights)
    for name, tensor in trained.items():
        tensor.copy_(weights[name])
    return model
