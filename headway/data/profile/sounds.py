"""Survey of sounds: how many of each class, their seconds, rates and channels, broken files, duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headway.config.recipe import DataConfig
from headway.data.files.columns import SOUND_NAMES
from headway.data.files.readers import Flaw
from headway.data.media.listing import matching
from headway.data.media.store import decoded
from headway.data.profile.media import MediaSurvey, Tally, is_table_of, spread
from headway.data.sounds.decode import Sound, read_seconds
from headway.data.sounds.rows import SOUND_COLUMNS, SUFFIXES, SoundRow, find_parts, other_files, read_rows, sound_files
from headway.errors import counted
from headway.progress import bar

QUIET, LOUD = 0.003, 0.999
"""The largest sample of a sound that is nearly silent; and from where on a sample is clipped."""


@dataclass
class SoundSurvey(MediaSurvey):
    """What a dataset of sounds holds."""

    sounds: int = 0
    texts: int = 0
    seconds: float = 0.0
    """Of all sounds together."""
    lengths: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The shortest, the median and the longest sound, in seconds."""
    rates: dict[int, int] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)
    silent: int = 0
    clipped: int = 0

    def lines(self) -> Iterator[str]:
        yield f"{counted(self.sounds, 'sounds')}{self.part_text()}"
        if self.sounds:
            low, middle, high = self.lengths
            yield f"{self.seconds / 60:,.1f} minutes; each about {middle:.2f} s, from {low:.2f} to {high:.2f} s"
            rates = ", ".join(f"{count:,} at {rate:,} Hz" for rate, count in sorted(self.rates.items()))
            kinds = ", ".join(f"{count:,} with {counted(n, 'channels')}" for n, count in sorted(self.channels.items()))
            yield f"{rates}; {kinds}"
        yield from self.label_lines("sound")
        if self.texts:
            yield f"{self.texts:,} with a text"
        for count, what in ((self.silent, "nearly silent"), (self.clipped, "clipped")):
            if count:
                yield f"{counted(count, 'sounds')} {what}"
        yield from self.trouble_lines("sound")


def holds_sounds(spec: str) -> bool:
    """Whether a spec names sounds: a folder of them, or a table with a column of paths or bytes."""
    path = Path(spec).expanduser()
    if path.is_dir():
        files = [each for each in sound_files(spec) if each.suffix.lower() in SUFFIXES]
        return bool(files) or any(_is_table(each) for each in sound_files(spec)[:1])
    return _is_table(path) or path.suffix.lower() in SUFFIXES if path.is_file() else bool(matching(spec, SUFFIXES))


def _is_table(path: Path) -> bool:
    """Bytes count in a column that is named after sounds: one called `file` may hold anything."""
    named = is_table_of(path, SOUND_NAMES, SUFFIXES)
    return named or is_table_of(path, SOUND_COLUMNS, SUFFIXES, paths=True)


def _decode(row: SoundRow) -> Sound:
    return read_seconds(row.sound, row.start, row.end, row.shown)


def survey_sounds(spec: str, keep: int = 20) -> SoundSurvey:
    """Survey a dataset."""
    found, lengths = SoundSurvey(spec), list[float]()
    rates, channels = Counter[int](), Counter[int]()
    tally = Tally(found, keep)
    with bar("reading sounds", unit="sounds") as tick:
        for part, place in (find_parts(spec) or {"": spec}).items():
            for each in decoded(read_rows(place, DataConfig()), _decode):
                tick(1)
                if isinstance(each, Flaw):
                    tally.flaw(each)
                    continue
                row, sound = each
                tally.example(row.shown, row.label, part, sound.samples.tobytes())
                found.sounds += 1
                found.texts += bool(row.text)
                peak = float(np.abs(sound.samples).max())
                found.silent += peak < QUIET
                found.clipped += peak > LOUD
                rates[sound.rate] += 1
                channels[sound.channels] += 1
                lengths.append(sound.seconds)
    if lengths:
        found.lengths, found.seconds = spread(lengths), sum(lengths)
    found.rates, found.channels = dict(rates), dict(channels)
    tally.finish(other_files(spec))
    return found
