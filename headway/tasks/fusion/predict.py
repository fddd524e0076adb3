"""Predicting with a classifier of images with sounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headway.config.networks.fusion import FusionConfig
from headway.data.batching.permutation import Index
from headway.data.images.preprocess import FILE, Preprocess, preprocess_from
from headway.data.sounds.preprocess import SoundPreprocess, preprocess_of
from headway.data.sounds.store import Pcm
from headway.errors import DataError
from headway.hub.download import side_file
from headway.jsonfile import read_json
from headway.model.model import Model
from headway.tasks.audio.data import Listener, decode_sounds
from headway.tasks.audio.task import SoundExample
from headway.tasks.batch import ProcessGroup
from headway.tasks.classification.predict import Prediction, as_predictions, gather_logits
from headway.tasks.fusion.data import Pairs
from headway.tasks.fusion.task import Fusion, FusionExample
from headway.tasks.image import ImageExample
from headway.tasks.losses.tokens import upcast
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers
from headway.tasks.predictor import Predictor
from headway.tasks.vision.data import decode_images, evaluation_batches, prepared

AT_ONCE = 64
"""Examples that are decoded together."""


def fusion_logits(model: Model, images: Tensor, sounds: Tensor) -> Tensor:
    """(B, labels) in float32, of normalised images and spectrograms."""
    logits: Tensor = model.classify(model(images, sounds).hidden)
    return upcast(logits)


def middle_clips(sounds: Sequence[Pcm], preprocess: SoundPreprocess) -> Tensor:
    """(B, n): one clip of each sound, from its middle."""
    found = [preprocess.clip(pcm, (len(pcm) - preprocess.samples) // 2) for pcm in sounds]
    return torch.from_numpy(np.stack(found))


def predict_logits(
    model: Model, pairs: Pairs, image: Preprocess, sound: SoundPreprocess, world: ProcessGroup | None = None
) -> Numbers:
    """(N, labels) of stored images with their sounds."""
    like, listen = next(model.parameters()), Listener(sound)
    norm = torch.tensor(image.normalisation, device=like.device)

    def logits_of(rows: Index) -> Tensor:
        pixels = prepared(pairs.images.pixels(rows).to(like.device), image, norm)
        clips = middle_clips([pairs.sounds.pcm(i) for i in rows.tolist()], sound)
        return fusion_logits(model, pixels.to(like.dtype), listen(clips.to(like.device)).to(like.dtype))

    return gather_logits(model, evaluation_batches(len(pairs)), len(model.config.labels), logits_of, world)


class FusionPredictor(Predictor[FusionExample, Prediction]):
    """A classifier of images with sounds in use."""

    task = Fusion()

    @cached_property
    def preprocess(self) -> tuple[Preprocess, SoundPreprocess]:
        """Of images and of sounds, as the model's folder says."""
        config = self.model.config
        folder = self.loaded.folder
        found = None if folder is None else side_file(folder, FILE)
        if not isinstance(config, FusionConfig) or found is None:
            raise DataError("D001", f"this model has no {FILE}, which says how images and sounds are prepared")
        values = read_json(found)
        return preprocess_from(values, config.image.image, config.image.channels), preprocess_of(values)

    def predict(self, examples: Sequence[FusionExample]) -> list[Prediction]:
        found: list[Prediction] = []
        labels, (image, sound) = self.model.config.labels, self.preprocess
        like, listen = next(self.model.parameters()), Listener(sound)
        norm = torch.tensor(image.normalisation, device=like.device)

        def logits_of(rows: Index) -> Tensor:
            some = [examples[i] for i in rows]
            pixels = decode_images([ImageExample(each.image, each.name) for each in some], image).to(like.device)
            clips = middle_clips(
                decode_sounds([SoundExample(each.sound, each.name) for each in some], sound.rate), sound
            )
            x = prepared(pixels, image, norm).to(like.dtype)
            return fusion_logits(self.model, x, listen(clips.to(like.device)).to(like.dtype))

        batches = [np.arange(at, min(at + AT_ONCE, len(examples))) for at in range(0, len(examples), AT_ONCE)]
        if batches:
            found = as_predictions("single", labels, gather_logits(self.model, batches, len(labels), logits_of))
        return found

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.fusion.training import evaluate_source

        return evaluate_source(self.model, *self.preprocess, self.recipe, source)
