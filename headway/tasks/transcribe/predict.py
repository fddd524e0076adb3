"""Transcripts of sounds: text, segments with their times, words with theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headway.config.recipe import DataConfig, ShapeConfig
from headway.data.sounds.decode import RATE, Samples, read_seconds
from headway.data.sounds.resample import resampled
from headway.errors import DataError
from headway.hub.generation_config import read_generation
from headway.model.model import Model
from headway.tasks.audio.task import SoundExample
from headway.tasks.base import Json
from headway.tasks.metrics.bootstrap import Evaluation
from headway.tasks.predictor import DIGITS, Loaded, Predictor, RunOptions
from headway.tasks.recipe import Recipe
from headway.tasks.transcribe.alignment import align_words
from headway.tasks.transcribe.features import HOP, SoundFeatures
from headway.tasks.transcribe.languages import code_of
from headway.tasks.transcribe.prompt import SpeechTokens, previous_text, read_speech_tokens
from headway.tasks.transcribe.task import Settings, Transcribe
from headway.tasks.transcribe.timestamps import Segment
from headway.tasks.transcribe.windows import Recording, Transcriber

TOGETHER = 64
"""Sounds that are decoded and transcribed together: more would fill the memory, if they are long."""


@dataclass(frozen=True)
class Transcript:
    """What was said in a sound."""

    text: str
    segments: list[Segment]
    language: str
    """Its code; empty for a model of one language."""
    duration: float
    """Seconds."""

    def to_dict(self) -> Json:
        """Plain values for JSON; times are in seconds."""
        found: Json = {"text": self.text, "duration": round(self.duration, 3)}
        if self.language:
            found["language"] = self.language
        return {**found, "segments": [_segment(each) for each in self.segments]}


def _segment(segment: Segment) -> Json:
    found: Json = {
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "seek": segment.seek,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "mean_log_probability": round(segment.mean_log_probability, DIGITS),
        "compression_ratio": round(segment.compression_ratio, DIGITS),
        "no_speech": round(segment.no_speech, DIGITS),
    }
    if segment.words:
        found["words"] = [
            {"word": w.text, "start": round(w.start, 3), "end": round(w.end, 3), "probability": round(w.probability, 4)}
            for w in segment.words
        ]
    return found


class TranscribePredictor(Predictor[SoundExample, Transcript]):
    """A speech model in use."""

    task = Transcribe()

    def __init__(self, loaded: Loaded, recipe: Recipe | None = None, options: RunOptions | None = None) -> None:
        super().__init__(loaded, recipe, options)
        check_speech_model(self.model)

    @classmethod
    def default_recipe(cls, loaded: Loaded) -> Recipe:
        """As it was trained, or as the model's folder says."""
        if loaded.recipe is not None and loaded.recipe.task == cls.task.name:
            return loaded.recipe
        said = read_generation(loaded.folder)
        tokens = _tokens(loaded)
        settings = Settings(
            beam=said.beam or 1,
            length_penalty=1.0 if said.length_penalty is None else said.length_penalty,
            timestamps=tokens.first_timestamp is not None,
        )
        shape = ShapeConfig(from_="" if loaded.folder is None else str(loaded.folder))
        return Recipe(
            task=cls.task.name,
            data=DataConfig(length=loaded.model.config.max_length or 448),
            model=shape,
            settings=settings,
        )

    @property
    def settings(self) -> Settings:
        """The recipe's, and what the caller asks for."""
        found: Settings = self.recipe.settings
        options = self.options
        changes: dict[str, Any] = {"beam": options.beam} if options.beam else {}
        if options.language:
            changes["language"] = options.language
        return replace(found, **changes)

    @cached_property
    def speech(self) -> SpeechTokens:
        return _tokens(self.loaded)

    @cached_property
    def transcriber(self) -> Transcriber:
        settings = self.settings
        if settings.language:
            self.speech.language_token(settings.language)
            settings = replace(settings, language=code_of(settings.language))
        before = previous_text(settings.prompt, self.tokenizer, self.speech)
        return Transcriber(self.model, self.speech, settings, self.loaded.generation.rules, before)

    def predict(self, examples: Sequence[SoundExample]) -> list[Transcript]:
        groups = (examples[at : at + TOGETHER] for at in range(0, len(examples), TOGETHER))
        return [found for some in groups for found in self._transcribe(some)]

    def _transcribe(self, examples: Sequence[SoundExample]) -> list[Transcript]:
        samples = [read_samples(example) for example in examples]
        recordings = [self.recording(each) for each in samples]

        def finish(segment: Segment) -> None:
            segment.text = self.text(segment.tokens)

        self.transcriber.transcribe(recordings, finish)
        if self.options.words:
            for each in recordings:
                self.align(each)
        return [
            Transcript(self.joined(each.segments), each.segments, each.language, len(sound) / RATE)
            for each, sound in zip(recordings, samples, strict=True)
        ]

    def align(self, recording: Recording) -> None:
        """Fill in when each word was said."""
        features, translate = self.transcriber.features, self.settings.translate
        align_words(self.model, self.tokenizer, self.speech, features, recording, translate=translate)

    def joined(self, segments: Sequence[Segment]) -> str:
        """The text of all segments. The tokens of Whisper bring the spaces between segments with them."""
        texts = [segment.text for segment in segments]
        if self.speech.first_timestamp is not None:
            return "".join(texts).strip()
        return " ".join(text.strip() for text in texts if text.strip())

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode([token for token in tokens if self.speech.is_text(token)])

    def recording(self, samples: Samples) -> Recording:
        """A sound at 16 kHz, as the model reads it."""
        return recording_of(samples, self.transcriber.features)

    def examine(self, source: str) -> Evaluation:
        from headway.tasks.transcribe.training import evaluate_source

        return evaluate_source(self.model, self.tokenizer, self.speech, self.recipe, source)


def recording_of(samples: Samples, features: SoundFeatures) -> Recording:
    frames, signal = -(-len(samples) // HOP), features.signal(samples)
    return Recording(signal, frames if features.raw else min(frames, signal.shape[1]), features.edges(samples))


def read_samples(example: SoundExample) -> Samples:
    """Mono samples at Whisper's rate."""
    sound = read_seconds(example.sound, example.start, example.end, example.name)
    return resampled(sound.samples, sound.rate, RATE)


def check_speech_model(model: Model) -> None:
    config = model.config
    if not Transcribe().fits(config):
        raise DataError("D001", "this model does not transcribe speech", "train one: headway train transcribe")


def _tokens(loaded: Loaded) -> SpeechTokens:
    special = loaded.model.config.special
    assert special.start is not None
    return read_speech_tokens(loaded.folder, loaded.require_tokenizer(), special.start, special.eos_ids)
