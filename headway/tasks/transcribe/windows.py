"""Long sounds, window by window. Letters: N windows, C mel channels, n samples.

Sequential: each window begins where the text of the one before was cut off, so a sound is read in turn, and several
sounds at once. Fixed: windows follow each other without a gap and are all independent, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from headway.config.generation import LogitRules
from headway.errors import ConfigError
from headway.generate.protocol import Source
from headway.model.model import Model, evaluating
from headway.tasks.transcribe.fallback import COOL, Decoded, decode_windows
from headway.tasks.transcribe.features import features_of
from headway.tasks.transcribe.prompt import SpeechTokens, detect_languages
from headway.tasks.transcribe.task import Settings
from headway.tasks.transcribe.timestamps import FRAMES_PER_SECOND, Segment, cut_segments

AT_ONCE = {"cpu": 1 << 14}
"""Positions of the encoder, times the beams, that are read together; elsewhere there is more room."""
ROOM = 1 << 18


@dataclass
class Recording:
    """A sound and what has been transcribed of it."""

    signal: Tensor
    """(C, frames), padded to a window if the sound is shorter, or samples (n,); on the CPU."""
    frames: int
    """Frames of the sound itself."""
    edges: tuple[int, ...] = ()
    """Where windows end, of a sound that is cut at pauses."""
    language: str = ""
    """Its code; empty until it is detected."""
    seek: int = 0
    """The first frame that is not transcribed yet."""
    segments: list[Segment] = field(default_factory=list)
    conditioned: bool = False
    """Whether the next window reads the text so far."""

    def size(self, at: int, window: int) -> int:
        """Frames of the window that begins at frame `at`."""
        return next((edge for edge in self.edges if edge > at), min(at + window, self.frames)) - at

    def starts(self, window: int) -> Iterator[int]:
        """Where windows begin that follow each other."""
        at = 0
        while at < self.frames:
            yield at
            at += self.size(at, window)


class Transcriber:
    """A speech model and how it is used."""

    def __init__(
        self, model: Model, speech: SpeechTokens, settings: Settings, rules: dict[str, Any], prompt: Sequence[int] = ()
    ) -> None:
        """`rules` are those of the model's folder; `prompt` is text that every sound begins after."""
        self.model, self.speech, self.settings, self.prompt = model, speech, settings, list(prompt)
        self.features = features_of(model.config, settings.seconds)
        self.window = self.features.window
        self.longest = int(model.config.target.positions.length)  # type: ignore[union-attr]
        known = {each.name for each in fields(LogitRules)} - {"forced", "first", "min_tokens", "no_repeat"}
        self.rules = {name: value for name, value in rules.items() if name in known} | {"max_length": self.longest}
        if settings.timestamps:
            if speech.first_timestamp is None:
                raise ConfigError("C004", "transcribe.timestamps = true, and the model has no timestamps")
            self.rules["timestamps"] = (speech.first_timestamp, speech.end, speech.latest_first)
        elif speech.first_timestamp is not None:  # `transformers` lets such a text have times, and cuts it there
            times = range(speech.first_timestamp, model.lm.vocab)
            self.rules["banned"] = (*self.rules.get("banned", ()), *((token,) for token in times))
        if settings.translate and "translate" not in speech.tasks:
            raise ConfigError("C004", "transcribe.translate = true, and the model does not translate")
        self.device = next(model.parameters()).device

    @property
    def batch(self) -> int:
        return max(1, AT_ONCE.get(self.device.type, ROOM) // (self.features.positions * self.settings.beam))

    @property
    def sequential(self) -> bool:
        return self.settings.windows == "sequential" and self.settings.timestamps

    def transcribe(self, recordings: Sequence[Recording], done: Callable[[Segment], None] | None = None) -> None:
        """Fill in the segments of all recordings; `done` is given each one as soon as it is known."""
        with evaluating(self.model), torch.autocast(self.device.type, enabled=False):
            self._detect([each for each in recordings if not each.language])
            for some in self._rounds(recordings) if self.sequential else self._all_windows(recordings):
                for segment in self._step(some):
                    if done is not None:
                        done(segment)
        for each in recordings:
            each.segments.sort(key=lambda segment: segment.start)

    def _rounds(self, recordings: Sequence[Recording]) -> Iterator[list[tuple[Recording, int]]]:
        """The next window of some recordings, until all are done."""
        while open_ := [each for each in recordings if each.seek < each.frames][: self.batch]:
            yield [(each, each.seek) for each in open_]

    def _all_windows(self, recordings: Sequence[Recording]) -> Iterator[list[tuple[Recording, int]]]:
        """Windows one after the other, of all recordings."""
        every = [(each, at) for each in recordings for at in each.starts(self.window)]
        if self.features.raw:  # so that little is padded
            every.sort(key=lambda part: part[0].size(part[1], self.window))
        for first in range(0, len(every), self.batch):
            yield every[first : first + self.batch]

    def _detect(self, recordings: Sequence[Recording]) -> None:
        """The language of each recording, by its first window, unless the settings say it."""
        if not self.speech.languages:
            return
        for first in range(0, len(recordings), self.batch):
            some = recordings[first : first + self.batch]
            if self.settings.language:
                codes = [self.settings.language] * len(some)
            else:
                codes = detect_languages(self.model, self._source([(each, 0) for each in some]), self.speech)
            for each, code in zip(some, codes, strict=True):
                each.language = code

    def _source(self, windows: Sequence[tuple[Recording, int]]) -> Source:
        parts = [self.features.cut(each.signal, at, each.size(at, self.window)) for each, at in windows]
        return self.features.batch(parts, next(self.model.parameters()))

    def _step(self, windows: Sequence[tuple[Recording, int]]) -> list[Segment]:
        """Decode a window of each of some recordings. Returns their new segments."""
        prompts = [self._prompt(each) for each, _ in windows]
        most = [self.features.most_tokens(each.size(at, self.window)) or self.longest for each, at in windows]
        found = decode_windows(self.model, self._source(windows), prompts, self.speech, self.settings, self.rules, most)
        new: list[Segment] = []
        for (each, at), decoded in zip(windows, found, strict=True):
            new += self._take(each, at, decoded)
        return new

    def _take(self, recording: Recording, at: int, decoded: Decoded) -> list[Segment]:
        size = recording.size(at, self.window)
        if decoded.silent:
            recording.seek = at + size
            return []
        segments, moved = cut_segments(decoded.tokens, at, size, self.speech)
        rest = decoded.tokens[sum(len(segment.tokens) for segment in segments) :]
        if rest and not self.sequential:  # no window begins where this text was cut off
            segments.append(Segment((at + moved) / FRAMES_PER_SECOND, (at + size) / FRAMES_PER_SECOND, rest))
        for segment in segments:
            segment.temperature, segment.no_speech = decoded.temperature, decoded.no_speech
            segment.mean_log_probability = decoded.mean_log_probability
            segment.compression_ratio, segment.seek = decoded.compression_ratio, at
            segment.end = min(segment.end, recording.frames / FRAMES_PER_SECOND) if size < self.window else segment.end
        recording.segments += segments
        recording.conditioned = self.settings.previous_text and decoded.temperature < COOL
        recording.seek = at + (moved if moved > 0 else size)  # a window that ends where it began would never end
        return segments

    def _prompt(self, recording: Recording) -> list[int]:
        """What the decoder reads: the text before, and the tokens of the language and the task."""
        settings = self.settings
        begin = self.speech.begin(recording.language, translate=settings.translate, timestamps=settings.timestamps)
        before = list(self.prompt)
        if recording.conditioned and self.sequential:
            before += self._said(recording)
        if not before or self.speech.previous is None:
            return begin
        most = self.longest // 2 - 1
        return [self.speech.previous, *before[-most:], *begin]

    def _said(self, recording: Recording) -> list[int]:
        """The tokens so far. Of two timestamps at the end of a segment the next segment's first is one."""
        first, found = self.speech.first_timestamp, list[int]()
        for segment in recording.segments:
            tokens = segment.tokens
            doubled = first is not None and len(tokens) > 2 and tokens[-2] >= first
            found += tokens[:-1] if doubled else tokens
        return found
