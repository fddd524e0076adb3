"""AudioClassificationTraining: an encoder of spectrograms learns the labels of sounds. Letters: B sounds, L labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.config.model import ClassifyHeadConfig, ModelConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.shape import sound_config
from headway.data.batching.permutation import Index, shuffle_samples
from headway.data.files.rows import BadRows
from headway.data.images.augment import PARTNER
from headway.data.images.png import grid, png
from headway.data.sounds.augment import SoundDraws
from headway.data.sounds.preprocess import FILE, SoundPreprocess
from headway.data.sounds.store import Pcm
from headway.errors import ConfigError
from headway.model.model import Model
from headway.tasks.audio.data import (
    Listener,
    SoundData,
    Sounds,
    file_to_try,
    heard,
    load_sounds,
    read_store,
    training_clips,
)
from headway.tasks.audio.task import reads_sounds
from headway.tasks.audio_classification.predict import predict_logits
from headway.tasks.audio_classification.task import Settings
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
from headway.tasks.image_classification.predict import image_logits
from headway.tasks.losses.labels import loss_from_logits
from headway.tasks.media.training import MediaTraining
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.recipe import Recipe
from headway.tasks.training import TaskContext

SAMPLES, COLUMNS = 16, 4
"""Held-out sounds that a sample shows, and how many stand side by side."""


@dataclass(frozen=True)
class AudioClassificationTraining(MediaTraining[Sounds]):
    """Sounds and their labels."""

    recipe: Recipe
    data: SoundData
    labels: tuple[str, ...]
    primary_metric = METRICS["single"][0]
    higher_is_better = True

    @classmethod
    def prepare(cls, context: TaskContext) -> AudioClassificationTraining:
        return cls.read(context.recipe)

    @classmethod
    def read(cls, recipe: Recipe) -> AudioClassificationTraining:
        """Read the sounds of a recipe."""
        bad = BadRows(recipe.data.bad_rows)
        reader = LabelReader("sounds", bad, recipe.data.label)
        return cls(recipe, load_sounds(recipe, bad, reader), tuple(reader.labels))

    @property
    def parts(self) -> SoundData:
        return self.data

    @property
    def sizes(self) -> dict[str, Any]:
        ready = self.data.preprocess
        return {"rate": ready.rate, "seconds": ready.seconds, "mels": ready.mels}

    @cached_property
    def tokens(self) -> int:
        """Of a clip for a new model; a pretrained one has its own."""
        return self.config(None).max_length or 1

    def config(self, base: AnyConfig | None) -> AnyConfig:
        settings: Settings = self.recipe.settings
        ready, shape = self.data.preprocess, self.recipe.model
        if base is None:
            base = sound_config(shape, ready.mels, ready.frames, settings.patch_frames)
        if not isinstance(base, ModelConfig) or not reads_sounds(base) or base.encoder is None:
            raise ConfigError(
                "C004", f"task {self.recipe.task} trains encoders of sounds, model.from = {shape.from_} is none"
            )
        head = ClassifyHeadConfig(labels=len(self.labels), pool=settings.pool, dropout=settings.dropout)
        stack = replace(base.encoder, drop_path=shape.drop_path or base.encoder.drop_path)
        return replace(base, encoder=stack, classify=head, labels=self.labels, lm=None)

    def batch(self, samples: Index) -> Batch:
        settings, seed, train = self.recipe.settings, self.recipe.seed, self.data.train
        clips, draws, rows = [], [], []
        for offset in (0, PARTNER) if settings.mixup else (0,):
            chosen = shuffle_samples(samples, len(train), seed + offset)
            made = training_clips(train, chosen, samples + offset, self.data.preprocess, settings, seed)
            clips.append(made[0])
            draws.append(made[1])
            rows.append(chosen)
        drawn = SoundDraws(*(torch.cat(parts) for parts in zip(*draws, strict=True)))
        labels = torch.from_numpy(self.truth[np.concatenate(rows)])
        count = len(samples)
        ready = self.listener
        return Batch((torch.cat(clips), *drawn, labels, ready.filters, ready.norm), count, count * self.tokens)

    @cached_property
    def listener(self) -> Listener:
        return Listener(self.data.preprocess)

    @cached_property
    def truth(self) -> Index:
        return label_numbers(self.data.train.rows, self.labels)

    @property
    def loss(self) -> Callable[..., Tensor]:
        settings, rate = self.recipe.settings, self.data.preprocess.rate
        smoothing = settings.label_smoothing

        def loss(model: Model, clips: Tensor, *rest: Tensor) -> Tensor:
            draws, (labels, filters, norm) = SoundDraws(*rest[:-3]), rest[-3:]
            logits = image_logits(model, heard(settings, clips, draws, filters, norm, rate))
            if not settings.mixup:
                return loss_from_logits("single", logits, labels, None, smoothing)
            return mixed_loss(logits, labels, draws.mixed.chunk(2)[0], smoothing)

        return loss

    def read_test(self, source: str) -> Sounds:
        return read_part(source, self.recipe, self.data.preprocess, self.labels, self.bad_tests)

    @cached_property
    def chance(self) -> dict[str, float]:
        return chance(self.data.valid.rows, self.labels)

    def loss_and_metrics(self, model: Model, part: Sounds, world: ProcessGroup) -> tuple[float, dict[str, float]]:
        logits = predict_logits(model, pcm_of_part(part), self.data.preprocess, world)
        return loss_and_metrics(logits, part.rows, self.labels)

    def evaluate_in_full(self, model: Model, part: Sounds) -> Evaluation:
        return evaluate_sounds(model, part, self.data.preprocess, self.labels)

    @property
    def tries(self) -> list[str]:
        return [file_to_try(self.data.valid.rows[0], self.recipe.data)]

    def sample(self, model: Model) -> str:
        some = Sounds(self.data.valid.store, self.data.valid.rows[:SAMPLES])
        found = as_predictions("single", self.labels, predict_logits(model, pcm_of_part(some), self.data.preprocess))
        return right_of(found, some.rows)

    def picture(self, model: Model) -> bytes:
        """Spectrograms of the sounds of the sample, high frequencies on top."""
        valid, ready = self.data.valid, self.data.preprocess
        clips = [valid.pcm(i) for i in range(min(SAMPLES, len(valid)))]
        found = self.listener(torch.from_numpy(np.stack([ready.clip(pcm, ready.starts(len(pcm))[0]) for pcm in clips])))
        grey = ((found.flip(2) + 2) / 4 * 255).clamp(0, 255).to(torch.uint8).numpy()
        return png(grid(list(grey), COLUMNS))

    @property
    def model_files(self) -> dict[str, Any]:
        return {FILE: self.data.preprocess.to_dict()}


def pcm_of_part(part: Sounds) -> list[Pcm]:
    return [part.pcm(i) for i in range(len(part))]


def evaluate_sounds(
    model: Model, part: Sounds, preprocess: SoundPreprocess, labels: tuple[str, ...], bad: int = 0
) -> Evaluation:
    """A model on labelled sounds, in full."""
    results = results_of(predict_logits(model, pcm_of_part(part), preprocess), part.rows, labels)
    return evaluation(results, part.rows, None, {"bad_rows": bad})


def read_part(spec: str, recipe: Recipe, preprocess: SoundPreprocess, labels: tuple[str, ...], bad: BadRows) -> Sounds:
    """Other sounds, at the same rate and with labels that the model knows."""
    store = read_store(spec, recipe.data, preprocess.rate, bad)
    return Sounds(store, LabelReader("sounds", bad, recipe.data.label, list(labels))(store.rows))


def evaluate_source(model: Model, preprocess: SoundPreprocess, recipe: Recipe, source: str) -> Evaluation:
    """On sounds of the user's; without a source, on what the run has not learned from."""
    data, bad, labels = recipe.data, BadRows(recipe.data.bad_rows), model.config.labels
    if source := source or data.test or data.valid:
        part = read_part(source, recipe, preprocess, labels, bad)
    else:
        part = AudioClassificationTraining.read(recipe).data.valid
    return evaluate_sounds(model, part, preprocess, labels, bad.count)
