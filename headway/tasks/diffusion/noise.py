"""Normal random numbers by number: a pure function of a key and a place, on any device.

A generator would give other numbers when a batch is split among steps or processes. Here each number is a hash, so
that resuming, accumulation and any number of processes change nothing. Letters: B samples.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from headway.data.batching.permutation import Index, splitmix64

MASK = (1 << 32) - 1
FACTORS = (0x7FEB352D, 0x846CA68B - (1 << 32))
"""Of lowbias32 (Wellons 2018). The second one is negative, so that no product needs more than torch's 63 bits."""


def sample_keys(seed: int, samples: Index) -> Tensor:
    """(B,): a key below 2^63 for each sample of a seed."""
    state = splitmix64(splitmix64(np.uint64(seed & (2**64 - 1))) ^ samples.astype(np.uint64))
    return torch.from_numpy((state >> np.uint64(1)).astype(np.int64))


def normal(keys: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """(B, *shape) in float32; another stream is other numbers for the same keys."""
    count = math.prod(shape)
    half = (count + 1) // 2
    rows = _mixed(_mixed(_mixed(keys >> 32) ^ (keys & MASK)) ^ stream)
    places = _mixed(torch.arange(1, 2 * half + 1, device=keys.device))
    bits = _mixed(rows[:, None] ^ places) >> 8  # 24 bits: what float32 holds exactly
    first, second = ((bits.float() + 0.5) / (1 << 24)).split(half, 1)
    length, angle = (-2 * first.log()).sqrt(), 2 * math.pi * second  # Box & Muller 1958
    waves = torch.cat([length * angle.cos(), length * angle.sin()], 1)
    return waves[:, :count].view(len(keys), *shape)


def _mixed(x: Tensor) -> Tensor:
    """A hash of 32 bits."""
    for shift, factor in zip((16, 15), FACTORS, strict=True):
        x = ((x ^ (x >> shift)) * factor) & MASK
    return x ^ (x >> 16)
