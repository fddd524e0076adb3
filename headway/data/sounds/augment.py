"""Augmentation of sounds: random numbers drawn for each sample by its number, and applied to a batch on any device.

`draw` is NumPy and runs where batches are made. `perturb` and `mask` are torch and run where the model is: before and
after the spectrogram. The noise is a function of a drawn number and of the place, so that all devices make the same.
Letters: B sounds, n samples, F bands, T frames, K masks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.config.augment import SoundAugmentConfig
from headway.data.batching.permutation import Index
from headway.data.images.augment import Floats, Uniform, beta
from headway.data.sounds.store import FULL

SNR_RANGE = 30.0
"""Decibels between the strongest and the weakest noise."""
LIMIT = 1 << 31
"""Drawn keys of the noise are below it."""


class SoundDraws(NamedTuple):
    """What was drawn for B sounds, as tensors of one batch."""

    gain: Tensor
    """(B,): a factor."""
    noise: Tensor
    """(B,): deviation of the noise over that of the sound; 0 for none."""
    key: Tensor
    """(B,): what the noise depends on, whole numbers."""
    times: Tensor
    """(B, K, 2): begin and end of hidden stretches, from 0 to 1."""
    bands: Tensor
    """(B, K, 2): the same of hidden bands."""
    mixed: Tensor
    """(B,): the share of the first sound in a mixture."""


def draw(config: SoundAugmentConfig, seed: int, samples: Index) -> tuple[SoundDraws, Floats]:
    """The random numbers of samples; and where each begins, from -1 to 1, before the sound's length is known."""
    uniform = Uniform(seed, samples)
    place = uniform(-1, 1)
    gain = 10 ** (uniform(-config.gain, config.gain) / 20)
    noise = 10 ** (-uniform(config.snr, config.snr + SNR_RANGE) / 20) * (uniform() < config.noise)
    key = np.floor(uniform(0, LIMIT))
    times = _spans(uniform, config.time_masks, config.time_mask, len(samples))
    bands = _spans(uniform, config.mel_masks, config.mel_mask, len(samples))
    mixed = beta(config.mixup, uniform()) if config.mixup > 0 else np.ones(len(samples))
    parts = (torch.from_numpy(each.astype(np.float32)) for each in (gain, noise, times, bands, mixed))
    first, second, third, fourth, fifth = parts
    return SoundDraws(first, second, torch.from_numpy(key.astype(np.int64)), third, fourth, fifth), place


def _spans(uniform: Uniform, count: int, most: float, samples: int) -> Floats:
    """(B, K, 2) random stretches, each at most so long."""
    found = np.zeros((samples, count, 2))
    for number in range(count):
        long = uniform(0, most)
        found[:, number, 0] = uniform() * (1 - long)
        found[:, number, 1] = found[:, number, 0] + long
    return found


def perturb(config: SoundAugmentConfig, clips: Tensor, draws: SoundDraws, real: Tensor | None = None) -> Tensor:
    """16-bit clips (B, n) to samples from -1 to 1 with noise and another loudness. Nothing is mixed yet.

    `real` (B, n) is false for padding, which is no part of a sound's loudness.
    """
    x = clips.float() / FULL
    if config.noise:
        power = x.square().mean(1) if real is None else x.square().sum(1) / real.sum(1)
        x = x + white_noise(draws.key, x.shape[1]) * (draws.noise * power.sqrt())[:, None]
    return x * draws.gain[:, None] if config.gain else x


def white_noise(key: Tensor, count: int) -> Tensor:
    """(B, count) normal numbers: a hash of key and place, through Box and Muller's formula."""
    place = torch.arange(count, device=key.device)
    bits = _hash(_hash(key)[:, None] + place)
    first, second = ((bits & 0xFFFF) + 1) / 65536, (bits >> 16 & 0xFFFF) / 65536
    return (-2 * first.log()).sqrt() * (2 * math.pi * second).cos()


def _hash(x: Tensor) -> Tensor:
    """32 bits mixed by shifts and products, which all fit into 64 bits."""
    for factor in (0x45D9F3B, 0x45D9F3B):
        x = ((x ^ (x >> 16)) & 0xFFFFFFFF) * factor & 0xFFFFFFFF
    return x ^ (x >> 16)


def mask(config: SoundAugmentConfig, x: Tensor, draws: SoundDraws) -> Tensor:
    """Normalised spectrograms (B, F, T) with hidden stretches and bands: the mean stands in their place."""
    if config.time_masks:
        x = x.masked_fill(_inside(draws.times, x.shape[2])[:, None, :], 0.0)
    if config.mel_masks:
        x = x.masked_fill(_inside(draws.bands, x.shape[1])[:, :, None], 0.0)
    return x


def _inside(spans: Tensor, count: int) -> Tensor:
    """(B, count): whether the centre of each of `count` places is in a span."""
    place = (torch.arange(count, device=spans.device) + 0.5) / count
    return ((place >= spans[..., :1]) & (place < spans[..., 1:])).any(1)
