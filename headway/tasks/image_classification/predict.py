"""Predicting with an image classifier: logits of images, and labels with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.images.preprocess import Preprocess
from headway.errors import DataError
from headway.model.model import Model
from headway.tasks.batch import ProcessGroup
from headway.tasks.classification.predict import Prediction, as_predictions, gather_logits
from headway.tasks.image import ImageExample
from headway.tasks.image_classification.task import ImageClassification
from headway.tasks.losses.tokens import upcast
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers
from headway.tasks.predictor import Predictor
from headway.tasks.vision.data import (
    Images,
    decode_images,
    evaluation_batches,
    folder_preprocess,
    normalised,
    prepared,
)

AT_ONCE = 64
"""Images that are decoded and classified together."""


def image_logits(model: Model, images: Tensor) -> Tensor:
    """(B, labels) in float32, of normalised images."""
    output = model(images)
    logits: Tensor = model.classify(output.hidden)
    return upcast(logits)


def predict_logits(model: Model, images: Images, preprocess: Preprocess, world: ProcessGroup | None = None) -> Numbers:
    """(N, labels) of stored images."""
    device, norm = next(model.parameters()).device, torch.tensor(preprocess.normalisation)

    def logits_of(rows: Index) -> Tensor:
        return image_logits(model, prepared(images.pixels(rows).to(device), preprocess, norm.to(device)))

    return gather_logits(model, evaluation_batches(len(images)), len(model.config.labels), logits_of, world)


class ImageClassificationPredictor(Predictor[ImageExample, Prediction]):
    """An image classifier in use."""

    task = ImageClassification()

    @cached_property
    def preprocess(self) -> Preprocess:
        return folder_preprocess(self.model, self.loaded.folder)

    def pixels(self, examples: Sequence[ImageExample]) -> Tensor:
        """Normalised images, on the model's device."""
        like = next(self.model.parameters())
        norm = torch.tensor(self.preprocess.normalisation, device=like.device)
        return normalised(decode_images(examples, self.preprocess).to(like.device).float() / 255, norm).to(like.dtype)

    def predict(self, examples: Sequence[ImageExample]) -> list[Prediction]:
        if self.model.config.classify is None or not self.model.config.labels:
            raise DataError("D001", "this model has no labels to give an image", "train one: headway train images")
        if not examples:
            return []

        def logits_of(rows: Index) -> Tensor:
            return image_logits(self.model, self.pixels([examples[i] for i in rows]))

        batches = [rows for all_rows in evaluation_batches(len(examples)) for rows in _split(all_rows)]
        labels = self.model.config.labels
        return as_predictions("single", labels, gather_logits(self.model, batches, len(labels), logits_of))

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.image_classification.training import evaluate_source

        return evaluate_source(self.model, self.preprocess, self.recipe, source)


def _split(rows: Index) -> list[Index]:
    return [rows[at : at + AT_ONCE] for at in range(0, len(rows), AT_ONCE)]
