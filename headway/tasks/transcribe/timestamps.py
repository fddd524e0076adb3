"""Segments of a window, cut where its tokens say two times in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.tasks.transcribe.prompt import SECONDS_PER_TIMESTAMP, SpeechTokens

FRAMES_PER_SECOND = 100
FRAMES_PER_TIMESTAMP = 2


@dataclass(frozen=True)
class Word:
    """A word and when it was said."""

    text: str
    start: float
    end: float
    probability: float


@dataclass
class Segment:
    """A stretch of sound and the tokens of what was said in it."""

    start: float
    """Seconds from the beginning of the sound."""
    end: float
    tokens: list[int]
    """Timestamps included."""
    temperature: float = 0.0
    mean_log_probability: float = 0.0
    compression_ratio: float = 0.0
    no_speech: float = 0.0
    """The probability that nobody speaks; 0 where there was no reason to ask."""
    seek: int = 0
    """The first frame of its window."""
    text: str = ""
    words: list[Word] = field(default_factory=list)


def cut_segments(tokens: Sequence[int], seek: int, frames: int, speech: SpeechTokens) -> tuple[list[Segment], int]:
    """The segments of a window of so many `frames` that begins at frame `seek`, and how many frames are done.

    Two timestamps in a row end a segment and begin the next one. What comes after the last pair is cut off by the end
    of the window: the next window begins there. One timestamp at the very end says that nothing was cut off.
    """
    tokens, offset, first = list(tokens), seek / FRAMES_PER_SECOND, speech.first_timestamp
    times = [] if first is None else [token - first for token in tokens]
    is_time = [time >= 0 for time in times] or [False] * len(tokens)
    cuts = [i + 1 for i in range(len(tokens) - 1) if is_time[i] and is_time[i + 1]]
    if not cuts:
        end = frames / FRAMES_PER_SECOND
        said = [time for time, here in zip(times, is_time, strict=False) if here]
        if said and said[-1] != 0:
            end = said[-1] * SECONDS_PER_TIMESTAMP
        return [Segment(offset, offset + end, tokens)], frames
    complete = is_time[-2:] == [False, True]
    ends = [*cuts, len(tokens)] if complete else [*cuts[:-1], cuts[-1] + 1]
    found, begin = [], 0
    for number, end_at in enumerate(ends):
        last = -1 if number < len(ends) - 1 or complete else -2
        start, end = (times[begin:end_at][place] * SECONDS_PER_TIMESTAMP for place in (0, last))
        found.append(Segment(offset + start, offset + end, tokens[begin:end_at]))
        begin = end_at
    return found, frames if complete else times[begin - 2] * FRAMES_PER_TIMESTAMP
