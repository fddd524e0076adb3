"""Log-mel spectrograms as Whisper's (Radford et al. 2022): 25 ms windows every 10 ms. Letters: B sounds, n samples."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.data.sounds.decode import RATE, Samples

Floats = NDArray[np.float64]
PER_SECOND = 100
"""Frames per second."""
FLOOR, SPAN = 1e-10, 8.0
"""The least power, and how many powers of ten below the loudest one a quiet one is clamped."""


def hop_length(rate: int = RATE) -> int:
    """Samples from a frame to the next one."""
    return rate // PER_SECOND


def window_length(rate: int = RATE) -> int:
    """Samples of a frame's window."""
    return rate // 40


def log_mel(samples: Samples, mels: int = 80, rate: int = RATE) -> Samples:
    """(mels, frames) of a sound, as Whisper's feature extractor gives it; frames are whole hops."""
    wide = torch.from_numpy(np.asarray(samples, np.float64))[None]
    return log_mels(wide, torch.from_numpy(mel_filters(mels, rate)), rate)[0].float().numpy()


def log_mels(samples: Tensor, filters: Tensor, rate: int = RATE) -> Tensor:
    """(B, mels, frames) of sounds (B, n) of one length. Each is clamped by its own loudest frame.

    `filters`: `mel_filters` in the type and on the device of the samples. The zeros behind a padded sound count as
    silence, as they do for Whisper.
    """
    found: Tensor = _log_mels(samples, filters, rate)
    return found


@torch.compiler.disable  # type: ignore[untyped-decorator]  # compilers cannot take complex numbers
def _log_mels(samples: Tensor, filters: Tensor, rate: int) -> Tensor:
    window = window_length(rate)
    if samples.shape[-1] < window:
        samples = F.pad(samples, (0, window - samples.shape[-1]))
    hann = torch.hann_window(window, dtype=samples.dtype, device=samples.device)
    with torch.autocast(samples.device.type, enabled=False):  # eight powers of ten do not fit into bfloat16's digits
        spectrum = torch.stft(samples, window, hop_length(rate), window=hann, return_complex=True)
        log = (filters @ spectrum[..., :-1].abs() ** 2).clamp(min=FLOOR).log10()
    log = torch.maximum(log, log.amax((-2, -1), keepdim=True) - SPAN)
    return (log + 4) / 4


@lru_cache(maxsize=8)
def mel_filters(mels: int, rate: int = RATE) -> Floats:
    """(mels, frequencies): triangles that are evenly spaced on the mel scale and have equal areas (Slaney 1998)."""
    frequencies = np.linspace(0, rate / 2, window_length(rate) // 2 + 1)
    edges = _hertz(np.linspace(0, _mel(rate / 2), mels + 2))
    rising = (frequencies[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies[None]) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    found: Floats = triangles * (2 / (edges[2:] - edges[:-2]))[:, None]
    return found


def _mel(hertz: float) -> float:
    """Linear below 1000 Hz, logarithmic above."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * float(np.log(hertz / 1000)) / float(np.log(6.4))


def _hertz(mel: Floats) -> Floats:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)))
