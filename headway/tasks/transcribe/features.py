"""What a model reads of a sound: log-mel frames in windows of one length, or samples as long as they are.

Letters: N windows, C mel channels, n samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.config.model import FramesConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.sounds import SamplesConfig
from headway.data.sounds.decode import RATE, Samples
from headway.data.sounds.mel import log_mel, log_mels, mel_filters
from headway.generate.protocol import Source
from headway.tasks.transcribe.timestamps import FRAMES_PER_SECOND

HOP = RATE // FRAMES_PER_SECOND
WIDTH, STRIDE = SamplesConfig().span()
TOKENS_PER_SECOND = 6.5
"""Nobody speaks faster: a model that reads samples repeats itself when it writes more (Jeffries et al. 2024)."""
PAUSE = FRAMES_PER_SECOND // 5
"""Frames over which loudness is averaged to find a pause."""
LAST_PART = 0.4
"""A long sound is cut at the quietest place in this last part of a window."""


@dataclass(frozen=True)
class SoundFeatures:
    """How sounds become what an encoder reads. Times are in frames, of a hundredth of a second each."""

    window: int
    """Frames that the encoder reads at once."""
    mels: int = 0
    """Bands of the spectrogram; 0: the encoder reads samples."""

    @property
    def raw(self) -> bool:
        return self.mels == 0

    @property
    def positions(self) -> int:
        """Positions of the encoder for a whole window."""
        return self.positions_of(self.window)

    def positions_of(self, frames: int) -> int:
        """Positions of the encoder for a sound of so many frames: all of a window, where silence fills it up."""
        return frames * HOP // STRIDE if self.raw else self.window // 2

    @property
    def seconds_per_position(self) -> float:
        return STRIDE / RATE if self.raw else 2 / FRAMES_PER_SECOND

    def most_tokens(self, frames: int) -> int:
        """How many tokens the text of so many frames may have; 0: as many as the decoder can write."""
        return math.ceil(frames / FRAMES_PER_SECOND * TOKENS_PER_SECOND) if self.raw else 0

    def compute(self, samples: Tensor) -> Tensor:
        """(N, C, frames) or (N, n) of samples (N, n) from -1 to 1."""
        return samples if self.raw else log_mels(samples, torch.from_numpy(mel_filters(self.mels)).float())

    def signal(self, samples: Samples) -> Tensor:
        """The whole of a sound. Whisper's spectrogram of a short one is that of the sound and silence."""
        if self.raw:
            return torch.from_numpy(np.ascontiguousarray(samples)).float()
        return torch.from_numpy(log_mel(np.pad(samples, (0, max(0, self.window * HOP - len(samples)))), self.mels))

    def cut(self, signal: Tensor, at: int, frames: int) -> Tensor:
        """A window that begins at frame `at`. What is missing at the end of a spectrogram is zero, as for Whisper."""
        if self.raw:
            return signal[at * HOP : (at + frames) * HOP]
        part = signal[:, at : at + self.window]
        return F.pad(part, (0, self.window - part.shape[1]))

    def batch(self, parts: Sequence[Tensor], like: Tensor) -> Source:
        """Windows as an encoder's input; those of samples are padded on the right."""
        if not self.raw:
            return Source(torch.stack(list(parts)).to(like))
        padded, real = padded_samples(parts)
        return Source(padded.to(like), None if bool(real.all()) else real.to(like.device))

    def edges(self, samples: Samples) -> tuple[int, ...]:
        """Where the windows of a sound of samples end: at pauses."""
        return pauses(samples, self.window) if self.raw else ()


def features_of(config: AnyConfig, seconds: float) -> SoundFeatures:
    """Those of a model; `seconds` is how much a model reads that could read any length."""
    front: Any = config.source
    if isinstance(front, FramesConfig):
        return SoundFeatures(2 * front.positions.length, front.channels)
    assert isinstance(front, SamplesConfig)
    return SoundFeatures(round(seconds * FRAMES_PER_SECOND))


def padded_samples(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(N, n), and which are no padding. Silence makes a sound as long as the first position of an encoder."""
    lengths = torch.tensor([max(WIDTH, len(part)) for part in parts])
    longest = int(lengths.max())
    padded = torch.stack([F.pad(part, (0, longest - len(part))) for part in parts])
    return padded, torch.arange(longest) < lengths[:, None]


def pauses(samples: Samples, window: int) -> tuple[int, ...]:
    """Frames at which windows of at most `window` frames end: each at the quietest place of its last part."""
    frames = -(-len(samples) // HOP)
    power = np.zeros(frames * HOP, np.float64)
    power[: len(samples)] = np.square(samples, dtype=np.float64)
    loudness = np.convolve(power.reshape(frames, HOP).mean(1), np.ones(PAUSE) / PAUSE, mode="same")
    edges, at = list[int](), 0
    while frames - at > window:
        first = at + max(1, round(window * (1 - LAST_PART)))
        at = first + int(loudness[first : at + window + 1].argmin())
        edges.append(at)
    return (*edges, frames)
