"""What a finished run leaves in its folder: model and tokenizer, test score, evaluation.json."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.hub.adapter import write_adapter
from headway.hub.checkpoint import checkpoints_of, last_weights, step_folders
from headway.hub.convert import tie_weights
from headway.hub.download import settings_folder
from headway.hub.folder import write_model_files, write_side_files
from headway.hub.restored import average_weights
from headway.hub.trainable import trainable_weights
from headway.hub.weights import writing
from headway.kernels.lora import ADAPTER_SUFFIXES, merge_adapters
from headway.model.model import Model
from headway.tasks.recipe import Recipe
from headway.train.build import empty_model
from headway.train.distributed import full_tensor
from headway.train.loop import Loop, Report
from headway.train.state import load_weights

SAMPLES = "samples"
"""The folder of a run's sample pictures, in its folder `run`."""


def finish(loop: Loop, recipe: Recipe, folder: Path, report: Report) -> None:
    """Write the model, then score it on the test data: an error there loses nothing."""
    loop.load_final_weights()
    if recipe.train.average:
        loop.world.barrier()  # until rank 0 has written the last checkpoint
        newest = step_folders(checkpoints_of(folder))[0]
        weights = average_weights(last_weights(newest, recipe.train.average))
        load_weights(trainable_weights(loop.model), weights)
    model = full_model(loop, recipe)
    if loop.world.first:
        _write_model(loop, model, recipe, folder)
    with loop.compute.precision():
        scores = loop.task.test(loop.model, loop.world)
    if scores is not None:
        report("test", step=loop.progress.step, **scores)
    if loop.world.first:
        _write_evaluation(loop, model, folder)
    loop.world.barrier()


def saved_weights(model: Model) -> dict[str, Tensor]:
    """The weights that the run's folder will hold: the adapters, if nothing else trains, or all."""
    return trainable_weights(model) if _trains_adapters_only(model) else dict(model.finished().named_parameters())


def _trains_adapters_only(model: Model) -> bool:
    return all(name.endswith(ADAPTER_SUFFIXES) for name in trainable_weights(model))


def _write_model(loop: Loop, model: Model, recipe: Recipe, folder: Path) -> None:
    shape, tokenizer = recipe.model, loop.task.tokenizer
    if _trains_adapters_only(loop.model):
        write_adapter(model, folder, shape.from_, shape.lora, shape.lora_targets)
        if tokenizer is not None:
            tokenizer.save(folder)
    else:
        merge_adapters(model)  # an adapter's folder has no place for a new head
        write_model_files(model.finished(), folder, tokenizer, settings_folder(shape.from_))
    write_side_files(folder, loop.task.model_files)


def _write_evaluation(loop: Loop, model: Model, folder: Path) -> None:
    """Write run/evaluation.json, the details that the report shows."""
    with loop.compute.precision():
        details = loop.task.details(model)
    if details is not None:
        text = json.dumps(details, ensure_ascii=False, indent=1)
        with writing(folder, len(text)):
            (folder / "run" / "evaluation.json").write_text(text + "\n", encoding="utf-8")


def full_model(loop: Loop, recipe: Recipe) -> Model:
    """The model with all of its weights, gathered from all processes; rank 0 uses it."""
    if loop.world.size == 1:
        return loop.model
    model = empty_model(loop.model.config, recipe.model)
    parameters = dict(loop.model.named_parameters())
    state = {name: full_tensor(parameters[name].detach()) for name, _ in model.named_parameters()}
    model.load_state_dict(state, assign=True, strict=False)  # tied weights are in the state once
    tie_weights(model)
    return model


def make_sample(loop: Loop, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """The model's output for a held-out example, for people to look at: a text, and the name of a picture's file."""
    was_training = loop.model.training
    with loop.ema.swapped_in() if loop.ema else nullcontext():  # the weights that evaluations and users see
        model = full_model(loop, recipe).eval()
        found: dict[str, Any] = {"text": loop.task.sample(model) if loop.world.first else ""}
        picture = loop.task.picture(model) if loop.world.first else None
    loop.model.train(was_training)
    if picture is not None:
        found["picture"] = f"{SAMPLES}/{loop.progress.step:07d}.png"
        path = folder / "run" / found["picture"]
        with writing(folder, len(picture)):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(picture)
    return found
