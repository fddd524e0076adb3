"""Drawing with a diffusion model: noise to images of a class, as a pure function of the seed.

Letters: B images, C channels, S side.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from headway.config.model import PatchesConfig
from headway.data.images.decode import Pixels
from headway.data.images.png import png
from headway.errors import DataError
from headway.model.model import Model, evaluating
from headway.tasks.base import Json
from headway.tasks.diffusion.noise import normal, sample_keys
from headway.tasks.diffusion.process import Process
from headway.tasks.diffusion.solvers import Predict, solve
from headway.tasks.diffusion.task import NO_CLASS, Diffusion, DrawExample, Settings, class_number
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Predictor

AT_ONCE = 64
"""Images that are drawn together."""


def denoised(model: Model, x: Tensor, times: Tensor, classes: Tensor) -> Tensor:
    """What the model predicts for noisy images (B, C, S, S), in their dtype or a wider one."""
    output = model(x.to(model.denoise.output.weight.dtype), condition=(times, classes))
    predicted: Tensor = model.denoise(output.hidden)
    return predicted.to(torch.promote_types(predicted.dtype, x.dtype))


def guided(model: Model, process: Process, classes: Tensor, guidance: float) -> Predict:
    """The model as solvers use it, with classifier-free guidance: away from what it predicts without a class."""
    nothing = torch.full_like(classes, len(model.config.labels))

    def predict(x: Tensor, time: float) -> tuple[Tensor, Tensor]:
        times = x.new_full((len(x),), time)
        if guidance in (0.0, 1.0):
            found = denoised(model, x, times, classes if guidance else nothing)
        else:
            both = denoised(model, torch.cat([x, x]), times.repeat(2), torch.cat([classes, nothing]))
            with_class, without = both.chunk(2)
            found = without + guidance * (with_class - without)
        image = process.split(x, found, times)[0].clamp(-1, 1)  # pixels have no other values
        alpha, sigma = process.levels(times[:1].double())
        return image, (x - float(alpha) * image) / float(sigma)

    return predict


def draw_images(model: Model, settings: Settings, classes: Tensor, keys: Tensor) -> Tensor:
    """Images (B, C, S, S) from -1 to 1 for class numbers and keys of noise."""
    front, head = model.config.source, model.config.denoise
    assert isinstance(front, PatchesConfig) and head is not None
    process, device = Process.of(head), next(model.parameters()).device
    shape, classes, keys = (front.channels, front.image, front.image), classes.to(device), keys.to(device)
    predict = guided(model, process, classes, settings.guidance)

    def fresh(step: int) -> Tensor:
        return normal(keys, shape, 1 + step)

    with evaluating(model):
        return solve(settings.solver, process, predict, normal(keys, shape), settings.steps, fresh)


def as_bytes(images: Tensor) -> Pixels:
    """Images from -1 to 1 as (B, C, S, S) bytes."""
    found: Pixels = ((images.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).cpu().numpy()
    return found


def as_picture(image: Pixels) -> Pixels:
    """(C, S, S) as files have it: (S, S, 3), or (S, S) if it is grey."""
    return image[0] if len(image) == 1 else image.transpose(1, 2, 0)


@dataclass(frozen=True)
class Drawn:
    """A drawn image."""

    label: str
    seed: int
    number: int
    image: Pixels
    """(C, S, S)"""

    def to_dict(self) -> Json:
        data = base64.b64encode(png(as_picture(self.image))).decode()
        return {"class": self.label, "seed": self.seed, "number": self.number, "png": data}


class DiffusionPredictor(Predictor[DrawExample, Drawn]):
    """A diffusion model in use."""

    task = Diffusion()

    def predict(self, examples: Sequence[DrawExample]) -> list[Drawn]:
        labels = self.model.config.labels
        if self.model.config.denoise is None:
            raise DataError("D001", "this model does not draw images", "train one: headway train diffusion")
        rows = [class_number(example.label, labels) for example in examples]
        groups: dict[Settings, list[int]] = {}
        for place, example in enumerate(examples):
            groups.setdefault(self._settings(example), []).append(place)
        found: dict[int, Pixels] = {}
        for settings, places in groups.items():
            for start in range(0, len(places), AT_ONCE):
                some = places[start : start + AT_ONCE]
                keys = torch.cat([sample_keys(examples[i].seed, np.array([examples[i].number])) for i in some])
                classes = torch.tensor([rows[i] for i in some])
                found |= zip(some, as_bytes(draw_images(self.model, settings, classes, keys)), strict=True)
        names = (*labels, NO_CLASS)
        return [Drawn(names[rows[i]], each.seed, each.number, found[i]) for i, each in enumerate(examples)]

    def _settings(self, example: DrawExample) -> Settings:
        settings: Settings = self.recipe.settings
        steps, guidance = example.steps, example.guidance
        return replace(
            settings,
            steps=settings.steps if steps is None else steps,
            guidance=settings.guidance if guidance is None else guidance,
        )

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.diffusion.training import evaluate_source

        return evaluate_source(self.model, self.loaded.folder, self.recipe, source)
