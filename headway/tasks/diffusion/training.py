"""DiffusionTraining: a diffusion transformer learns to remove noise. Letters: B images, C channels, S side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.model import ModelConfig, PatchesConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import diffusion_config
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.images.augment import Uniform
from headway.data.images.png import enlarged, grid, png
from headway.data.synthetic.pictures import SHAPES, make_pictures
from headway.errors import ConfigError, NotFoundError
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.predict import gather_logits
from headway.tasks.classification.single import label_numbers
from headway.tasks.diffusion.evaluate import Measure, evaluation
from headway.tasks.diffusion.judge import FILE as JUDGE
from headway.tasks.diffusion.judge import centred, judged, make_judge
from headway.tasks.diffusion.noise import normal, sample_keys
from headway.tasks.diffusion.predict import as_bytes, denoised, draw_images
from headway.tasks.diffusion.process import FIRST, LAST, Process
from headway.tasks.diffusion.task import Settings
from headway.tasks.image_classification.training import read_labelled, read_part
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext
from headway.tasks.vision.data import ImageData, Images, evaluation_batches
from headway.tasks.vision.training import ImageTraining

DRAWN = partial(make_pictures, kinds=tuple(SHAPES), sizes=("large",), places=("in the middle",))
"""What a small model learns to draw in two minutes."""
SHOWN_CLASSES, COLUMNS = 10, 8
"""Classes that a sample shows, one in each row, and images of each class."""
SHOWN_HEIGHT = 256
"""Pixels that the picture of a sample has at least."""
VALID_SEED = 1 << 20
"""Noise and times of the validation images: the same ones in every evaluation."""


@dataclass(frozen=True)
class DiffusionTraining(ImageTraining):
    """Images and their classes."""

    recipe: Recipe
    data: ImageData
    labels: tuple[str, ...]
    folder: Path
    """Where the judge is kept."""
    rank_zero_first: Callable[[Callable[[], Any]], Any]
    primary_metric = "distance"

    @classmethod
    def prepare(cls, context: TaskContext) -> DiffusionTraining:
        data, labels = read_labelled(context.recipe, DRAWN)
        ready = replace(data.preprocess, mean=(0.5,), std=(0.5,))  # from -1 to 1
        return cls(
            context.recipe, replace(data, preprocess=ready), labels, context.folder.parent, context.rank_zero_first
        )

    @property
    def size(self) -> int:
        return self.data.preprocess.size

    @cached_property
    def tokens(self) -> int:
        """Of an image of a new model; a pretrained one has its own."""
        return self.config(None).max_length or 1

    def config(self, base: AnyConfig | None) -> AnyConfig:
        ready, count = self.data.preprocess, len(self.labels)
        if base is None:
            base = diffusion_config(self.recipe.model, ready.size, ready.channels, count)
        if not isinstance(base, ModelConfig) or base.denoise is None or base.condition is None:
            why = f"task diffusion trains diffusion models, model.from = {self.recipe.model.from_} is none"
            raise ConfigError("C004", why)
        assert isinstance(base.source, PatchesConfig)
        settings: Settings = self.recipe.settings
        return replace(
            base,
            source=replace(base.source, image=ready.size),
            condition=replace(base.condition, classes=count),
            denoise=replace(base.denoise, objective=settings.objective, schedule=settings.schedule),
            labels=self.labels,
        )

    @property
    def tries(self) -> list[str]:
        return [f"class={self.labels[0]}"]

    def batch(self, samples: Index) -> Batch:
        settings, seed, count = self.recipe.settings, self.recipe.seed, len(samples)
        rows = shuffle_samples(samples, len(self.data.train), seed)
        uniform = Uniform(seed, samples)
        times, hidden = uniform(FIRST, LAST), uniform() < settings.class_dropout
        classes = np.where(hidden, len(self.labels), self.truth[rows])
        numbers = (torch.from_numpy(times.astype(np.float32)), torch.from_numpy(classes), sample_keys(seed, samples))
        return Batch((self.data.train.pixels(rows), *numbers), count, count * self.tokens)

    @cached_property
    def truth(self) -> Index:
        return label_numbers(self.data.train.rows, self.labels)

    @property
    def loss(self) -> Callable[..., Tensor]:
        process, size = Process.of(self.recipe.settings), self.size

        def loss(model: Model, images: Tensor, times: Tensor, classes: Tensor, keys: Tensor) -> Tensor:
            return image_losses(process, centred(images, size), times, keys, model, classes).sum()

        return loss

    def read_test(self, source: str) -> Images:
        return read_part(source, self.recipe, self.data.preprocess, self.labels, self.bad_tests)

    @cached_property
    def chance(self) -> dict[str, float]:
        """Of a model that predicts zeros, and of one that draws the same class whatever is asked."""
        shares = np.bincount(label_numbers(self.data.valid.rows, self.labels)) / len(self.data.valid)
        return {"valid": float(self._losses(None, self.data.valid).mean()), "agreement": float(shares.max())}

    def _losses(self, model: Model | None, part: Images, world: ProcessGroup | None = None) -> Numbers:
        """(N,): the loss of each image, with its own noise at its own time; no model predicts zeros."""
        process, numbers = Process.of(self.recipe.settings), np.arange(len(part))
        times = torch.from_numpy(Uniform(VALID_SEED, numbers)(FIRST, LAST).astype(np.float32))
        keys = sample_keys(VALID_SEED, numbers)
        classes = torch.from_numpy(label_numbers(part.rows, self.labels))
        device = torch.device("cpu") if model is None else next(model.parameters()).device

        def losses_of(rows: Index) -> Tensor:
            images = centred(part.pixels(rows).to(device), self.size)
            when, noise, labels = (each[rows].to(device) for each in (times, keys, classes))
            return image_losses(process, images, when, noise, model, labels)[:, None]

        batches = evaluation_batches(len(part))
        if model is None:
            return torch.cat([losses_of(rows) for rows in batches])[:, 0].double().numpy()
        return gather_logits(model, batches, 1, losses_of, world)[:, 0]

    def measure(self, model: Model, part: Images) -> Measure:
        """How images are judged beside those of a part."""
        device, truth = next(model.parameters()).device, label_numbers(part.rows, self.labels)
        judge = self.rank_zero_first(
            lambda: make_judge(self.folder / JUDGE, self.data.train, self.truth, self.size, len(self.labels), device)
        )
        return Measure(judge, part, truth, self.size, self.recipe.settings)

    def loss_and_metrics(self, model: Model, part: Images, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        return float(self._losses(model, part, world).mean()), self.measure(model, part).metrics(model, world)

    def evaluate_in_full(self, model: Model, part: Images) -> Evaluation:
        measure = self.measure(model, part)
        some = Images(self.data.train.store, self.data.train.rows[: self.recipe.settings.eval_images])
        features = judged(measure.judge, some, self.size)[0]
        right = float((measure.real[1].numpy() == measure.truth).mean())
        return evaluation(model, measure, self._losses(model, part), (features, right), self.labels)

    def sample(self, model: Model) -> str:
        settings = self.recipe.settings
        shown = ", ".join(self.labels[:SHOWN_CLASSES])
        return f"rows: {shown} ({settings.steps} steps of {settings.solver}, guidance {settings.guidance:g})"

    def picture(self, model: Model) -> bytes:
        classes = np.arange(min(SHOWN_CLASSES, len(self.labels))).repeat(COLUMNS)
        keys = sample_keys(self.recipe.seed, np.arange(len(classes)) % COLUMNS)
        images = as_bytes(draw_images(model, self.recipe.settings, torch.from_numpy(classes), keys))
        return png(enlarged(grid(list(images), COLUMNS), SHOWN_HEIGHT))


def image_losses(
    process: Process, images: Tensor, times: Tensor, keys: Tensor, model: Model | None, classes: Tensor
) -> Tensor:
    """(B,): the mean squared error of each image's prediction; no model predicts zeros."""
    noise = normal(keys, tuple(images.shape[1:]))
    target, x = process.target(images, noise, times), process.noisy(images, noise, times)
    error = target if model is None else denoised(model, x, times, classes) - target
    return error.square().flatten(1).mean(1)


def evaluate_source(model: Model, folder: Path | None, recipe: Recipe, source: str) -> Evaluation:
    """On images of the user's; without a source, on what the run has not learned from."""
    if folder is None or not (folder / "run").is_dir():
        what = "drawn images are measured by a classifier of the images that the model was trained on"
        raise NotFoundError("F001", f"{what}, and this is not the folder of a run", "headway eval RUN")
    training = DiffusionTraining.prepare(TaskContext(recipe, folder / "run" / "tokenizer"))
    source = source or recipe.data.test
    return training.evaluate_in_full(model, training.read_test(source) if source else training.data.valid)
