"""Speech to text: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headway.config.augment import SoundAugmentConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, at_least, conflict, within
from headway.errors import DataError, nearest
from headway.tasks.audio.task import SOUND_FRONTS, SoundExample, SoundTask
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.seq2seq.task import OutputSettings
from headway.tasks.transcribe.subtitles import FORMATS

SPOKEN = "spoken:"
"""`spoken:ma-ti-so` are syllables that headway speaks, to try a model with."""
MOST_SPOKEN = 100


@dataclass(frozen=True, kw_only=True)
class Settings(OutputSettings, SoundAugmentConfig):
    """Section `transcribe` of a recipe."""

    beam: int = 1
    """Beam width; 1 takes the likeliest token each time."""
    seconds: float = 30.0
    """Seconds of sound that the encoder of a new model reads at once; shorter sounds are padded to it. Also of one that
    reads samples (Moonshine), which could read any length: longer sounds are cut at pauses."""
    mels: Literal[80, 128] = 80
    """Bands of the spectrogram of a new model."""
    language: str = ""
    """The language that is spoken, by its code or name; empty: the model detects it."""
    translate: bool = False
    """Whether a model of many languages writes English, whatever is spoken; others refuse it."""
    timestamps: bool = False
    """Whether the model writes when each sentence begins and ends; models that headway trains do not."""
    windows: Literal["sequential", "fixed"] = "sequential"
    """How a long sound is read. sequential: each window begins where the last sentence ended, which needs timestamps;
    fixed: windows without gaps, many at once, which is faster and may cut a word."""
    previous_text: bool = True
    """Whether the decoder reads the text of the windows before."""
    prompt: str = ""
    """A text to read as if it had been said before, such as names that will occur."""
    temperature: float = 0.0
    """The first temperature to try; 0 takes the likeliest tokens."""
    fallback: float = 0.2
    """By how much the temperature rises, up to 1, while a text looks wrong; 0: there is one try."""
    compression_ratio: float = 1.35
    """A text looks wrong whose token ids zlib makes smaller by more than this factor: it repeats itself; 0 is off."""
    log_probability: float = -1.0
    """A text looks wrong whose tokens have a lower log-probability than this, on average."""
    no_speech: float = 0.6
    """An unlikely text is dropped where the probability that nobody speaks is above this; 1 is off."""
    seed: int = 0
    """Seed of texts that are sampled."""
    metric: Literal["wer", "cer"] = "wer"
    """The error rate that selects the best checkpoint: of words, or of letters."""
    normalization: Literal["words", "none"] = "words"
    """How texts are compared. words: in lower case, without punctuation; none: as they are."""

    def __post_init__(self) -> None:
        self.check_output("transcribe")
        within("transcribe", self, Range(0.1, 60), "seconds")
        within("transcribe", self, Range(0, 1), "temperature", "no_speech")
        at_least("transcribe", self, fallback=0, compression_ratio=0)
        self.check_augment("transcribe")
        if self.mixup:
            raise conflict(f"transcribe.mixup = {self.mixup}", "task = transcribe", "texts cannot be mixed")


def spoken_sound(text: str) -> Any:
    """Syllables that headway speaks, written with hyphens between them."""
    from headway.data.sounds.decode import RATE
    from headway.data.synthetic.sounds import SYLLABLES, speak

    said = text.split("-")
    if wrong := [each for each in said if each not in SYLLABLES]:
        what = f"headway does not speak {wrong[0][:40]!r}{nearest(wrong[0], SYLLABLES)}"
        raise DataError("D001", what, f"it speaks {', '.join(SYLLABLES[:6])} … with hyphens between them")
    return speak(said[:MOST_SPOKEN], seed=1, rate=RATE).samples, RATE


class Transcribe(SoundTask):
    """The words that are spoken in a sound."""

    name, title, noun = "transcribe", "speech recognition", "speech recogniser"
    pipeline_tag = "automatic-speech-recognition"
    prefix = SPOKEN
    beside = "texts"
    Settings = Settings
    tries = Tries("spoken:ma-ti-so", own="talk.wav", request={"input": "spoken:ma-ti-so"})
    made_up = "syllables that headway speaks, with their text"
    options = frozenset({"beam", "language", "words", "format"})
    formats = FORMATS
    predicts_tokens = True
    fine_tuning = FineTuning(lr=1e-5, epochs=(2, 10), keep_best=True)
    training = "headway.tasks.transcribe.training:TranscribeTraining"
    predictor = "headway.tasks.transcribe.predict:TranscribePredictor"

    def value(self, value: Any, folder: Path | None) -> Any:
        if isinstance(value, str) and value.startswith(SPOKEN):
            return spoken_sound(value.removeprefix(SPOKEN))
        return super().value(value, folder)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        hears = getattr(config.source, "kind", "") in SOUND_FRONTS
        return config.kind == "encoder-decoder" and config.lm is not None and hears

    def render(self, found: Sequence[tuple[SoundExample, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            yield f"{example.name}: {result['text']}" if len(found) > 1 else str(result["text"])
