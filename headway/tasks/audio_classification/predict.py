"""Predicting with a sound classifier: logits of clips, and labels with probabilities of whole sounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from torch import Tensor

from headway.data.batching.permutation import Index
from headway.data.sounds.preprocess import SoundPreprocess
from headway.data.sounds.store import Pcm
from headway.errors import DataError
from headway.model.model import Model
from headway.tasks.audio.data import Listener, Windows, decode_sounds, folder_preprocess
from headway.tasks.audio.task import SoundExample
from headway.tasks.audio_classification.task import AudioClassification
from headway.tasks.batch import ProcessGroup
from headway.tasks.classification.predict import Prediction, as_predictions, gather_logits
from headway.tasks.image_classification.predict import image_logits
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.metrics.classification import Numbers
from headway.tasks.predictor import Predictor

AT_ONCE = 64
"""Sounds that are decoded together."""


def predict_logits(
    model: Model, sounds: Sequence[Pcm], preprocess: SoundPreprocess, world: ProcessGroup | None = None
) -> Numbers:
    """(N, labels) of sounds; those that are longer than a clip are read in windows."""
    windows, listen = Windows(sounds, preprocess), Listener(preprocess)
    like = next(model.parameters())

    def logits_of(which: Index) -> Tensor:
        return image_logits(model, listen(windows.clips(which).to(like.device)).to(like.dtype))

    return windows.combined(gather_logits(model, windows.batches, len(model.config.labels), logits_of, world))


class AudioClassificationPredictor(Predictor[SoundExample, Prediction]):
    """A sound classifier in use."""

    task = AudioClassification()

    @cached_property
    def preprocess(self) -> SoundPreprocess:
        return folder_preprocess(self.loaded.folder)

    def predict(self, examples: Sequence[SoundExample]) -> list[Prediction]:
        if self.model.config.classify is None or not self.model.config.labels:
            hint = "train one: headway train audio_classification"
            raise DataError("D001", "this model has no labels to give a sound", hint)
        found: list[Prediction] = []
        for at in range(0, len(examples), AT_ONCE):
            sounds = decode_sounds(examples[at : at + AT_ONCE], self.preprocess.rate)
            logits = predict_logits(self.model, sounds, self.preprocess)
            found += as_predictions("single", self.model.config.labels, logits)
        return found

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.audio_classification.training import evaluate_source

        return evaluate_source(self.model, self.preprocess, self.recipe, source)
