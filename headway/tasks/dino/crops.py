"""Multi-crop: two large and some small random crops of each image, all drawn by the sample's number.

As in Caron et al. (2021), but without blur and without a change of hue. Letters: B images.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headway.config.augment import AugmentConfig
from headway.data.batching.permutation import Index
from headway.data.images.augment import Draws, Uniform, apply, draw, grey_or_solarized
from headway.tasks.dino.task import Settings
from headway.tasks.vision.data import normalised

LARGE = 2
"""Large crops of an image, which the teacher sees too."""
NEXT = 1 << 42
"""Added to a sample's number for each crop: every crop has draws of its own."""
COLOURS = 1 << 41
"""Added for the draws of colours."""
JITTERED = 0.8
"""Share of crops whose colours are changed."""


class Crops(NamedTuple):
    """Crops of B images: all first ones, then all second ones, and so on."""

    large: Tensor
    """(2B, channels, size, size)"""
    small: Tensor | None


def crop_config(settings: Settings, low: float) -> AugmentConfig:
    """The augmentation of a crop that keeps at least `low` of the area."""
    return AugmentConfig(crop=low, flip=settings.flip, jitter=settings.jitter)


def draw_crops(settings: Settings, seed: int, samples: Index, share: float) -> tuple[Tensor, ...]:
    """What is drawn for the crops, those of one number together: the fields of `Draws`, and (…, 2) for colours."""
    found, chosen = [], []
    for number in range(LARGE + settings.local_crops):
        large, own = number < LARGE, samples + number * NEXT
        low, most = (settings.global_crop, 1.0) if large else (settings.local_crop, settings.global_crop)
        drawn, uniform = draw(crop_config(settings, low), seed, own, share, most), Uniform(seed, own + COLOURS)
        plain = torch.from_numpy(uniform() >= JITTERED)[:, None]
        found.append(drawn._replace(jitter=torch.where(plain, 1.0, drawn.jitter)))
        rates = (settings.grey, settings.solarize if number == 1 else 0.0)
        chosen.append(torch.stack([torch.from_numpy(uniform() < rate) for rate in rates], 1).float())
    return (*(torch.cat(parts) for parts in zip(*found, strict=True)), torch.cat(chosen))


def make_crops(
    settings: Settings, images: Tensor, drawn: tuple[Tensor, ...], size: int, small: int, norm: Tensor
) -> Crops:
    """Stored bytes (B, channels, side, side) to normalised crops, on the images' device."""
    first = LARGE * len(images)

    def crops(part: slice, count: int, low: float, side: int) -> Tensor:
        several = images.repeat(count, 1, 1, 1)
        x = apply(crop_config(settings, low), several, Draws(*(each[part] for each in drawn[:-1])), side)
        return normalised(grey_or_solarized(x, drawn[-1][part]), norm)

    large = crops(slice(0, first), LARGE, settings.global_crop, size)
    if not settings.local_crops:
        return Crops(large, None)
    return Crops(large, crops(slice(first, None), settings.local_crops, settings.local_crop, small))


def small_side(settings: Settings, size: int, patch: int) -> int:
    """The side of a small crop: as set, or about three sevenths of the image, in whole patches."""
    return settings.local_size or max(1, round(3 / 7 * (size // patch))) * patch
