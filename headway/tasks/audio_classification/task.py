"""Audio classification: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from headway.config.augment import SoundAugmentConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, shares, within
from headway.tasks.audio.task import SoundExample, SoundTask, reads_sounds
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.media.task import label_lines


@dataclass(frozen=True, kw_only=True)
class Settings(SoundAugmentConfig):
    """Section `audio_classification` of a recipe."""

    rate: int = 0
    """Samples per second, to which all sounds are resampled; 0: as model.from, or 16,000, or as sounds are made up."""
    seconds: float = 0.0
    """Length of a clip: shorter sounds are padded, longer ones cut at random, and in use read in windows; 0: as
    model.from, or so long that nine tenths of the sounds fit, and at most 10."""
    mels: int = 0
    """Bands of the log-mel spectrogram, which is that of Whisper (Radford et al. 2022); 0: as model.from, or 80,
    or 48 below 16,000 samples per second."""
    patch_frames: int = 0
    """Width of a patch in frames of 10 ms; its height is model.patch; 0: as wide as high."""
    pool: Literal["first", "mean"] = "first"
    """What represents a sound: the vector of the class token, as in AST, or the mean over all patches."""
    dropout: float = 0.0
    """Dropout before the classifier."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all labels (Szegedy et al. 2016)."""

    def __post_init__(self) -> None:
        self.check_augment("audio_classification")
        shares("audio_classification", self, "dropout", "label_smoothing")
        within("audio_classification", self, Range(0, 192_000), "rate")
        within("audio_classification", self, Range(0, 60), "seconds")
        within("audio_classification", self, Range(0, 256), "mels")
        within("audio_classification", self, Range(0, 6000), "patch_frames")


class AudioClassification(SoundTask):
    """One label for a sound."""

    name, title, noun = "audio_classification", "audio classification", "sound classifier"
    pipeline_tag = "audio-classification"
    Settings = Settings
    tries = Tries("played:rising", own="clip.wav", request={"input": "played:rising"})
    made_up = "tones, sweeps and noises that headway makes"
    made_up_sizes: ClassVar[Mapping[str, Any]] = {"model.patch": 0, "audio_classification.patch_frames": 0}
    fine_tuning = FineTuning(lr=5e-5)
    training = "headway.tasks.audio_classification.training:AudioClassificationTraining"
    predictor = "headway.tasks.audio_classification.predict:AudioClassificationPredictor"

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return config.classify is not None and config.classify.labels > 1 and reads_sounds(config)

    def render(self, found: Sequence[tuple[SoundExample, Json]], *, colours: bool) -> Iterator[str]:
        return label_lines([(example.name, result) for example, result in found])
