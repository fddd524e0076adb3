"""Predicting with an image encoder: one vector per image."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headway.errors import DataError
from headway.model.model import evaluating
from headway.tasks.dino.features import class_vectors
from headway.tasks.dino.task import Dino
from headway.tasks.embedding.predict import Vector
from headway.tasks.image import ImageExample
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import Predictor
from headway.tasks.vision.inputs import read_images

AT_ONCE = 64
"""Images that are decoded and read together."""


class DinoPredictor(Predictor[ImageExample, Vector]):
    """An image encoder in use."""

    task = Dino()

    def predict(self, examples: Sequence[ImageExample]) -> list[Vector]:
        found: list[Vector] = []
        with evaluating(self.model):
            for at in range(0, len(examples), AT_ONCE):
                vectors = class_vectors(self.model, read_images(self.loaded, examples[at : at + AT_ONCE])[1])
                found += [Vector(row) for row in torch.nn.functional.normalize(vectors, dim=-1).tolist()]
        return found

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.dino.training import evaluate_source

        if self.loaded.recipe is None and not self.recipe.data.train:
            what = "an image encoder is evaluated by the labels of training images, and none are known"
            raise DataError("D001", what, "name them: data.train=FOLDER")
        return evaluate_source(self.model, self.recipe, source)
