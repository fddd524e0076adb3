"""Resampling by a polyphase filter (windowed sinc): one way on all machines, so numbers depend on no package.

With up / down the reduced ratio of the rates, sample j of the result is at the position j · down / up of the input. Its
phase, j mod up, chooses the filter. All samples of a phase are `down` apart in the input: a convolution with a stride.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.data.sounds.decode import Samples

ZEROS = 56
"""Zero crossings of the sinc on each side."""
PASS = 0.955
"""The middle of the transition band, as a share of the lower half rate: it ends where aliases would begin."""
BETA = 8.0
"""Of the Kaiser window: stop band at about -80 dB, ripple in the pass band about 1e-4."""
BLOCK = 1 << 20
"""Samples of the input at a time; any number gives the same result."""


def resampled(samples: Samples, rate: int, wanted: int) -> Samples:
    """Samples at another rate; the first one stays where it is."""
    if rate == wanted:
        return samples
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    half = _half(up, down)
    count = -(-len(samples) * up // down)
    turns = -(-count // up)  # samples of each phase
    edge = np.zeros(half, np.float32)
    padded = np.concatenate([edge, samples, np.zeros(half + down + half, np.float32)])
    found = np.empty((turns, up), np.float32)
    step = max(1, BLOCK // down)
    for at in range(0, turns, step):
        some = min(step, turns - at)
        part = torch.from_numpy(padded[at * down : (at + some) * down + 2 * half + 1])
        found[at : at + some] = _phases(part, up, down, half, some).numpy()
    return found.reshape(-1)[:count]


def _half(up: int, down: int) -> int:
    """Samples of the input on each side of a position that its filter covers."""
    return math.ceil(ZEROS * max(1.0, down / up))


def _phases(part: Tensor, up: int, down: int, half: int, turns: int) -> Tensor:
    """(turns, up): all phases, some at a time, whose filters overlap enough to share a convolution."""
    group = max(1, 2 * half * up // down)
    found = []
    for first in range(0, up, group):
        count = min(group, up - first)
        begin = first * down // up
        filters = _filters(up, down, first, count)
        need = (turns - 1) * down + filters.shape[-1]
        inside = part[begin : begin + need]
        inside = F.pad(inside, (0, need - len(inside)))
        found.append(F.conv1d(inside[None, None], filters, stride=down)[0].T)
    return torch.cat(found, 1)


@lru_cache(maxsize=16)
def _filters(up: int, down: int, first: int, count: int) -> Tensor:
    """(count, 1, taps): the filters of neighbouring phases, all from the first position of the first one."""
    half, cut = _half(up, down), PASS * min(1.0, up / down)
    place = np.arange(first, first + count) * down / up - first * down // up
    taps = 2 * half + 1 + math.ceil(place[-1])
    distance = np.arange(taps)[None, :] - half - place[:, None]
    filters = cut * np.sinc(cut * distance) * _kaiser(distance / half)
    filters /= filters.sum(1, keepdims=True)
    return torch.from_numpy(filters[:, None].astype(np.float32))


def _kaiser(x: NDArray[np.float64]) -> NDArray[np.float64]:
    inside = np.clip(1 - x**2, 0, None)
    found: NDArray[np.float64] = np.where(np.abs(x) <= 1, np.i0(BETA * np.sqrt(inside)) / np.i0(BETA), 0.0)
    return found
