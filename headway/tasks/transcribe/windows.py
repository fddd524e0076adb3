"""Long sounds, window by window. Letters: N windows, C mel channels.

Sequential: each window begins where the text of the one before was cut off, so a sound is read in turn, and several
sounds at once. Fixed: windows follow each other without a gap and are all independent, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.generation import LogitRules
from headway.errors import ConfigError
from headway.model.model import Model, evaluating
from headway.tasks.transcribe.fallback import COOL, Decoded, decode_windows
from headway.tasks.transcribe.prompt import SpeechTokens, detect_languages
from headway.tasks.transcribe.task import Settings
from headway.tasks.transcribe.timestamps import FRAMES_PER_SECOND, Segment, cut_segments

AT_ONCE = {"cpu": 1 << 14}
"""Positions of the encoder, times the beams, that are read together; elsewhere there is more room."""
ROOM = 1 << 18


@dataclass
class Recording:
    """A sound and what has been transcribed of it."""

    mel: Tensor
    """(C, frames), on the CPU; padded to a window if the sound is shorter."""
    frames: int
    """Frames of the sound itself."""
    language: str = ""
    """Its code; empty until it is detected."""
    seek: int = 0
    """The first frame that is not transcribed yet."""
    segments: list[Segment] = field(default_factory=list)
    conditioned: bool = False
    """Whether the next window reads the text so far."""


def window_frames(model: Model) -> int:
    """Frames of the encoder's window: two for each of its positions."""
    return 2 * int(model.config.source.positions.length)  # type: ignore[union-attr]


class Transcriber:
    """A speech model and how it is used."""

    def __init__(
        self, model: Model, speech: SpeechTokens, settings: Settings, rules: dict[str, Any], prompt: Sequence[int] = ()
    ) -> None:
        """`rules` are those of the model's folder; `prompt` is text that every sound begins after."""
        self.model, self.speech, self.settings, self.prompt = model, speech, settings, list(prompt)
        self.window = window_frames(model)
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
        self.device = next(model.parameters()).device

    @property
    def batch(self) -> int:
        return max(1, AT_ONCE.get(self.device.type, ROOM) // (self.window // 2 * self.settings.beam))

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
        every = [(each, at) for each in recordings for at in range(0, each.frames, self.window)]
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
                codes = detect_languages(self.model, self._frames([(each, 0) for each in some]), self.speech)
            for each, code in zip(some, codes, strict=True):
                each.language = code

    def _frames(self, windows: Sequence[tuple[Recording, int]]) -> Tensor:
        """(N, C, window). What is missing at the end of a sound is zero, as it is for Whisper."""
        parts = [each.mel[:, at : at + self.window] for each, at in windows]
        padded = [F.pad(part, (0, self.window - part.shape[1])) for part in parts]
        return torch.stack(padded).to(next(self.model.parameters()))

    def _step(self, windows: Sequence[tuple[Recording, int]]) -> list[Segment]:
        """Decode a window of each of some recordings. Returns their new segments."""
        prompts = [self._prompt(each) for each, _ in windows]
        frames = self._frames(windows)
        found = decode_windows(self.model, frames, prompts, self.speech, self.settings, self.rules)
        new: list[Segment] = []
        for (each, at), decoded in zip(windows, found, strict=True):
            new += self._take(each, at, decoded)
        return new

    def _take(self, recording: Recording, at: int, decoded: Decoded) -> list[Segment]:
        size = min(self.window, recording.frames - at)
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
