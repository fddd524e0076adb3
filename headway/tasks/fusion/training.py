"""FusionTraining: a model learns the labels of images with their sounds. Letters: B examples, L labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from headway.config.model import ClassifyHeadConfig, PatchesConfig
from headway.config.networks.fusion import FusionConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import fusion_config, sound_config, vision_config
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.rows import BadRows
from headway.data.images.preprocess import FILE, Preprocess
from headway.data.sounds.preprocess import SoundPreprocess
from headway.data.sounds.store import FULL
from headway.model.model import Model
from headway.tasks.audio.data import Listener, spectrograms
from headway.tasks.batch import Batch, ProcessGroup
from headway.tasks.classification.evaluate import METRICS, evaluation
from headway.tasks.classification.predict import as_predictions
from headway.tasks.classification.single import (
    LabelReader,
    chance,
    label_numbers,
    loss_and_metrics,
    results_of,
    right_of,
)
from headway.tasks.fusion.data import FusionData, Pairs, load_pairs, pair_to_try, read_pairs, some_pairs
from headway.tasks.fusion.predict import fusion_logits, middle_clips, predict_logits
from headway.tasks.fusion.task import Settings
from headway.tasks.losses.labels import loss_from_logits
from headway.tasks.media.training import MediaTraining
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext
from headway.tasks.vision.data import prepared

SAMPLES = 16
"""Held-out examples that a sample shows."""


@dataclass(frozen=True)
class FusionTraining(MediaTraining[Pairs]):
    """Images, their sounds and their labels."""

    recipe: Recipe
    data: FusionData
    labels: tuple[str, ...]
    primary_metric = METRICS["single"][0]
    higher_is_better = True

    @classmethod
    def prepare(cls, context: TaskContext) -> FusionTraining:
        return cls.read(context.recipe)

    @classmethod
    def read(cls, recipe: Recipe) -> FusionTraining:
        """Read the images and sounds of a recipe."""
        bad = BadRows(recipe.data.bad_rows)
        reader = LabelReader("images with sounds", bad, recipe.data.label)
        return cls(recipe, load_pairs(recipe, bad, reader), tuple(reader.labels))

    @property
    def parts(self) -> FusionData:
        return self.data

    @property
    def sizes(self) -> dict[str, Any]:
        image, sound = self.data.image, self.data.sound
        sounds = {"rate": sound.rate, "seconds": sound.seconds, "mels": sound.mels}
        return {"size": image.size, "channels": image.channels, **sounds}

    @cached_property
    def tokens(self) -> int:
        return self._config.tokens

    def config(self, base: AnyConfig | None) -> AnyConfig:
        return self._config

    @cached_property
    def _config(self) -> FusionConfig:
        settings: Settings = self.recipe.settings
        shape, image, sound = self.recipe.model, self.data.image, self.data.sound
        seen = vision_config(shape, image.size, image.channels).source
        high = replace(shape, patch=settings.patch_mels or sound.mels)
        heard = sound_config(high, sound.mels, sound.frames, settings.patch_frames).source
        assert isinstance(seen, PatchesConfig) and isinstance(heard, PatchesConfig)
        head = ClassifyHeadConfig(labels=len(self.labels), dropout=settings.dropout)
        return replace(fusion_config(shape, settings.mode, seen, heard), classify=head, labels=self.labels)

    def batch(self, samples: Index) -> Batch:
        train, data = self.data.train, self.data
        rows = shuffle_samples(samples, len(train), self.recipe.seed)
        clips = middle_clips([train.sounds.pcm(i) for i in rows.tolist()], data.sound)
        labels = torch.from_numpy(self.truth[rows])
        norm = torch.tensor(data.image.normalisation)
        tensors = (train.images.pixels(rows), clips, labels, norm, self.listener.filters, self.listener.norm)
        return Batch(tensors, len(samples), len(samples) * self.tokens)

    @cached_property
    def listener(self) -> Listener:
        return Listener(self.data.sound)

    @cached_property
    def truth(self) -> Index:
        return label_numbers(self.data.train.rows, self.labels)

    @property
    def loss(self) -> Callable[..., Tensor]:
        image, rate, smoothing = self.data.image, self.data.sound.rate, self.recipe.settings.label_smoothing

        def loss(
            model: Model, pixels: Tensor, clips: Tensor, labels: Tensor, norm: Tensor, filters: Tensor, spread: Tensor
        ) -> Tensor:
            heard = spectrograms(clips.float() / FULL, filters, spread, rate)
            logits = fusion_logits(model, prepared(pixels, image, norm), heard)
            return loss_from_logits("single", logits, labels, None, smoothing)

        return loss

    def read_test(self, source: str) -> Pairs:
        return read_part(source, self.recipe, self.data.image, self.data.sound, self.labels, self.bad_tests)

    @cached_property
    def chance(self) -> dict[str, float]:
        return chance(self.data.valid.rows, self.labels)

    def loss_and_metrics(self, model: Model, part: Pairs, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        logits = predict_logits(model, part, self.data.image, self.data.sound, world)
        return loss_and_metrics(logits, part.rows, self.labels)

    def evaluate_in_full(self, model: Model, part: Pairs) -> Evaluation:
        return evaluate_pairs(model, part, self.data.image, self.data.sound, self.labels)

    @property
    def tries(self) -> list[str]:
        return [pair_to_try(self.data.valid, self.recipe.data)]

    def sample(self, model: Model) -> str:
        some = some_pairs(self.data.valid, self.data.valid.rows[:SAMPLES])
        logits = predict_logits(model, some, self.data.image, self.data.sound)
        return right_of(as_predictions("single", self.labels, logits), some.rows)

    @property
    def model_files(self) -> dict[str, Any]:
        return {FILE: {**self.data.image.to_dict(), **self.data.sound.to_dict()}}


def evaluate_pairs(
    model: Model, part: Pairs, image: Preprocess, sound: SoundPreprocess, labels: tuple[str, ...], bad: int = 0
) -> Evaluation:
    """A model on labelled images with sounds, in full."""
    results = results_of(predict_logits(model, part, image, sound), part.rows, labels)
    return evaluation(results, part.rows, None, {"bad_rows": bad})


def read_part(
    spec: str, recipe: Recipe, image: Preprocess, sound: SoundPreprocess, labels: tuple[str, ...], bad: BadRows
) -> Pairs:
    """Other images with sounds, prepared alike and with labels that the model knows."""
    pairs = read_pairs(spec, recipe.data, image, sound.rate, bad)
    return some_pairs(pairs, LabelReader("images with sounds", bad, recipe.data.label, list(labels))(pairs.rows))


def evaluate_source(model: Model, image: Preprocess, sound: SoundPreprocess, recipe: Recipe, source: str) -> Evaluation:
    """On images and sounds of the user's; without a source, on what the run has not learned from."""
    data, bad, labels = recipe.data, BadRows(recipe.data.bad_rows), model.config.labels
    if source := source or data.test or data.valid:
        part = read_part(source, recipe, image, sound, labels, bad)
    else:
        part = FusionTraining.read(recipe).data.valid
    return evaluate_pairs(model, part, image, sound, labels, bad.count)
