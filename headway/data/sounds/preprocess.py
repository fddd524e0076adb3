"""Preprocessing: how a sound becomes the spectrogram that a model reads; preprocessor_config.json holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headway.data.batching.permutation import Index
from headway.data.sounds.decode import RATES
from headway.data.sounds.mel import hop_length
from headway.data.sounds.store import Pcm
from headway.errors import ConfigError

FILE = "preprocessor_config.json"
MOST_SECONDS = 60.0
"""The longest clip: attention grows with its square."""


@dataclass(frozen=True)
class SoundPreprocess:
    """Resample, cut into clips of one length, log-mel, and normalise by one mean and standard deviation."""

    rate: int
    """Samples per second."""
    seconds: float
    """Length of a clip."""
    mels: int
    mean: float = 0.0
    std: float = 1.0
    """Of the log-mel values."""

    @property
    def samples(self) -> int:
        """Of a clip."""
        return round(self.rate * self.seconds)

    @property
    def frames(self) -> int:
        """Of a clip's spectrogram."""
        return self.samples // hop_length(self.rate)

    def clip(self, sound: Pcm, first: int) -> Pcm:
        """The clip that begins at a sample, which may be negative; zeros stand for what is outside of the sound."""
        found = np.zeros(self.samples, np.int16)
        start, end = max(0, first), min(len(sound), first + self.samples)
        if start < end:
            found[start - first : end - first] = sound[start:end]
        return found

    def starts(self, length: int) -> Index:
        """Where the clips of a sound begin: one with the sound in its middle, or several that overlap by half."""
        if length <= self.samples:
            return np.array([(length - self.samples) // 2])
        count = 1 - (self.samples - length) // max(1, self.samples // 2)
        return np.linspace(0, length - self.samples, count).round().astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        return {"sound": asdict(self)}


def preprocess_of(values: Mapping[str, Any]) -> SoundPreprocess:
    """How a model's preprocessor_config.json says that sounds are prepared."""
    table = values.get("sound")
    try:
        found = SoundPreprocess(**table)  # type: ignore[arg-type]
        numbers = (found.rate, found.seconds, found.mels, found.mean, found.std)
        if not all(isinstance(each, int | float) and np.isfinite(each) for each in numbers):
            raise TypeError
    except TypeError:
        raise ConfigError("C003", f"{FILE}: {str(table)[:80]} does not say how sounds are prepared") from None
    good = RATES[0] <= found.rate <= RATES[1] and 0 < found.seconds <= MOST_SECONDS and found.std > 0
    if not (good and 0 < found.mels <= 512 and type(found.rate) is int and found.frames > 0):
        raise ConfigError("C003", f"{FILE}: {found} is no way to prepare sounds")
    return found
