"""ImageClassificationTraining: a vision transformer learns the labels of images. Letters: B images, L labels."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.model import ClassifyHeadConfig, ModelConfig, PatchesConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import vision_config
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.rows import BadRows
from headway.data.images.augment import PARTNER, Draws, apply, draw, mix
from headway.data.images.png import enlarged, grid, png
from headway.data.images.preprocess import Preprocess
from headway.data.synthetic.pictures import make_pictures
from headway.errors import ConfigError
from headway.model.model import Model
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.evaluate import METRICS, evaluation
from headway.tasks.classification.predict import as_predictions
from headway.tasks.classification.single import (
    LabelReader,
    chance,
    label_numbers,
    loss_and_metrics,
    mixed_loss,
    results_of,
    right_of,
)
from headway.tasks.image_classification.predict import image_logits, predict_logits
from headway.tasks.image_classification.task import Settings
from headway.tasks.losses.labels import loss_from_logits
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext
from headway.tasks.vision.data import Draw, ImageData, Images, file_to_try, load_images, normalised, read_store
from headway.tasks.vision.training import ImageTraining

SAMPLES, COLUMNS = 16, 8
"""Held-out images that a sample shows, and how many stand side by side."""
SHOWN = 24
"""Images of an evaluation that the report shows."""
SHOWN_SIDE = 64
"""Pixels that a shown image has at least."""


@dataclass(frozen=True)
class ImageClassificationTraining(ImageTraining):
    """Images and their labels."""

    recipe: Recipe
    data: ImageData
    labels: tuple[str, ...]
    primary_metric = METRICS["single"][0]
    higher_is_better = True

    @classmethod
    def prepare(cls, context: TaskContext) -> ImageClassificationTraining:
        return cls.read(context.recipe)

    @classmethod
    def read(cls, recipe: Recipe) -> ImageClassificationTraining:
        """Read the images of a recipe."""
        return cls(recipe, *read_labelled(recipe))

    @cached_property
    def tokens(self) -> int:
        """Of an image of a new model; a pretrained one has its own."""
        return self.config(None).max_length or 1

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings: Settings = self.recipe.settings
        ready = self.data.preprocess
        if base is None:
            base = vision_config(self.recipe.model, ready.size, ready.channels)
        if not isinstance(base, ModelConfig) or not isinstance(base.source, PatchesConfig) or base.decoder is not None:
            raise ConfigError(
                "C004", f"task images trains vision encoders, model.from = {self.recipe.model.from_} is none"
            )
        pool = "first_mean" if base.family == "dinov2" and settings.pool == "first" else settings.pool
        head = ClassifyHeadConfig(labels=len(self.labels), pool=pool, dropout=settings.dropout)
        source = replace(base.source, image=ready.size)
        assert base.encoder is not None
        stack = replace(base.encoder, drop_path=self.recipe.model.drop_path or base.encoder.drop_path)
        return replace(base, source=source, encoder=stack, classify=head, labels=self.labels, lm=None)

    def batch(self, samples: Index) -> Batch:
        settings, seed, train = self.recipe.settings, self.recipe.seed, self.data.train
        rows = shuffle_samples(samples, len(train), seed)
        several = [(rows, draw(settings, seed, samples, self.data.share))]
        if settings.mixes:
            other = shuffle_samples(samples, len(train), seed + PARTNER)
            several.append((other, draw(settings, seed, samples + PARTNER, self.data.share)))
        images = torch.cat([train.pixels(rows) for rows, _ in several])
        draws = Draws(*(torch.cat(parts) for parts in zip(*(drawn for _, drawn in several), strict=True)))
        labels = torch.from_numpy(self.truth[np.concatenate([rows for rows, _ in several])])
        count = len(samples)
        return Batch((images, *draws, labels, self.data.norm), count, count * self.tokens)

    @cached_property
    def truth(self) -> Index:
        return label_numbers(self.data.train.rows, self.labels)

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, size = self.recipe.settings, self.data.preprocess.size
        smoothing = settings.label_smoothing

        def loss(model: Model, images: Tensor, *rest: Tensor) -> Tensor:
            draws, labels, norm = Draws(*rest[:-2]), rest[-2], rest[-1]
            x = apply(settings, images, draws, size)
            if not settings.mixes:
                logits = image_logits(model, normalised(x, norm))
                return loss_from_logits("single", logits, labels, None, smoothing)
            count = len(x) // 2
            mixed = draws.mixed[:count]
            logits = image_logits(model, normalised(mix(x[:count], x[count:], mixed), norm))
            return mixed_loss(logits, labels, mixed[:, 0], smoothing)

        return loss

    def read_test(self, source: str) -> Images:
        return read_part(source, self.recipe, self.data.preprocess, self.labels, self.bad_tests)

    @cached_property
    def chance(self) -> dict[str, float]:
        return chance(self.data.valid.rows, self.labels)

    def loss_and_metrics(self, model: Model, part: Images, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        logits = predict_logits(model, part, self.data.preprocess, world)
        return loss_and_metrics(logits, part.rows, self.labels)

    def evaluate_in_full(self, model: Model, part: Images) -> Evaluation:
        return evaluate_images(model, part, self.data.preprocess, self.labels)

    @property
    def tries(self) -> list[str]:
        return [file_to_try(self.data.valid, self.recipe.data)]

    def sample(self, model: Model) -> str:
        some = Images(self.data.valid.store, self.data.valid.rows[:SAMPLES])
        found = as_predictions("single", self.labels, predict_logits(model, some, self.data.preprocess))
        return right_of(found, some.rows)

    def picture(self, model: Model) -> bytes:
        some = self.data.valid.rows[:SAMPLES]
        images = [self.data.valid.store.pixels[row.place] for row in some]
        return png(enlarged(grid(images, COLUMNS), 2 * SHOWN_SIDE))


def read_labelled(recipe: Recipe, draw_pictures: Draw = make_pictures) -> tuple[ImageData, tuple[str, ...]]:
    """The images of a recipe with the names of their labels; `draw_pictures` makes pictures where no data are given."""
    bad = BadRows(recipe.data.bad_rows)
    reader = LabelReader("images", bad, recipe.data.label)
    data = load_images(recipe, bad, reader, draw_pictures)
    return data, tuple(reader.labels)


def evaluate_images(
    model: Model, part: Images, preprocess: Preprocess, labels: tuple[str, ...], bad: int = 0
) -> Evaluation:
    """A model on labelled images, in full, with the surest mistakes as pictures."""
    results = results_of(predict_logits(model, part, preprocess), part.rows, labels)
    found = evaluation(results, part.rows, None, {"bad_rows": bad})
    found.details["pictures"] = [
        {
            "png": thumbnail(part.store.pixels[part.rows[wrong["example"]].place]),
            "text": f"{wrong['predicted']} ({wrong['probability']:.2f}), labelled {wrong['label']}",
        }
        for wrong in found.details["worst"][:SHOWN]
    ]
    return found


def thumbnail(pixels: Any) -> str:
    """A PNG file as a data URL."""
    picture = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return f"data:image/png;base64,{base64.b64encode(png(enlarged(picture, SHOWN_SIDE))).decode()}"


def read_part(spec: str, recipe: Recipe, preprocess: Preprocess, labels: Sequence[str], bad: BadRows) -> Images:
    """Other images, of the same size and with labels that the model knows."""
    store = read_store(spec, recipe.data, preprocess, bad)
    return Images(store, LabelReader("images", bad, recipe.data.label, list(labels))(store.rows))


def evaluate_source(model: Model, preprocess: Preprocess, recipe: Recipe, source: str) -> Evaluation:
    """On images of the user's; without a source, on what the run has not learned from."""
    data, bad, labels = recipe.data, BadRows(recipe.data.bad_rows), model.config.labels
    if source := source or data.test or data.valid:
        part = read_part(source, recipe, preprocess, labels, bad)
    else:
        part = ImageClassificationTraining.read(recipe).data.valid
    return evaluate_images(model, part, preprocess, labels, bad.count)
