"""Augmentation: random numbers drawn for each sample by its number, and applied to a whole batch on any device.

`draw` is NumPy and runs where batches are made. `apply` is torch and runs where the model is: it takes the bytes of the
stored images and the drawn numbers, so that the pixels do not depend on batches, workers or processes.
Letters: B images, C channels, R stored side, S side of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from headway.config.augment import AugmentConfig
from headway.data.batching.permutation import Index, splitmix64

Floats = NDArray[np.float64]
PARTNER = 1 << 40
"""Added to a sample's number: the draws of the image that is mixed into it."""
ASPECT = np.log(4 / 3)
"""The largest logarithm of the aspect ratio of a random crop."""
ERASED = (0.02, 1 / 3)
"""Smallest and largest share of the area that is erased."""
QUANTILES = 4097
"""Places at which a beta distribution is tabulated."""
SHEAR, TRANSLATE, ROTATE, ENHANCE = 0.3, 0.3, np.pi / 6, 0.9
"""The strongest operations of a policy: a slope, a share of the side, radians, a factor's distance from 1."""
SHAPES = 5
"""Operations of a policy that change the shape: shear and translate along x and y, rotate."""


class Draws(NamedTuple):
    """What was drawn for B images, as tensors of one batch."""

    geometry: Tensor
    """(B, 2, 3): where each pixel of the result comes from, as `affine_grid` takes it."""
    operations: Tensor
    """(B, 2, 2): numbers of two operations on colours, and their strengths from -1 to 1."""
    jitter: Tensor
    """(B, 3): factors of brightness, contrast and saturation."""
    erased: Tensor
    """(B, 7): a box as left, top, right, bottom from 0 to 1, and a colour."""
    mixed: Tensor
    """(B, 5): the share of the first image, and the box of the second one, which is empty for mixup."""


class Uniform:
    """Numbers from 0 to 1 for each sample, column after column: a pure function of seed, sample and column."""

    def __init__(self, seed: int, samples: Index) -> None:
        self.state = splitmix64(splitmix64(np.uint64(seed & (2**64 - 1))) ^ samples.astype(np.uint64))
        self.column = 0

    def __call__(self, low: float = 0.0, high: float = 1.0) -> Floats:
        self.column += 1
        bits = splitmix64(self.state + np.uint64(self.column)) >> np.uint64(11)
        found: Floats = low + (high - low) * (bits.astype(np.float64) / float(1 << 53))
        return found


def draw(config: AugmentConfig, seed: int, samples: Index, share: float = 1.0, most: float = 1.0) -> Draws:
    """The random numbers of samples. `share`: of the stored side, which a result without a crop shows the middle.

    `most`: the largest share of the area that a crop keeps.
    """
    uniform = Uniform(seed, samples)
    matrices, operations = _geometry(config, uniform, len(samples), share, most), np.zeros((len(samples), 2, 2))
    for number in range({"none": 0, "trivial": 1, "rand": 2}[config.policy]):
        change, operations[:, number] = _operation(config, uniform)
        matrices = matrices @ change
    jitter = np.stack([1 + uniform(-config.jitter, config.jitter) for _ in range(3)], 1)
    erased = np.concatenate([_box(uniform, uniform(*ERASED) * (uniform() < config.erase)), _colour(uniform)], 1)
    parts = (matrices[:, :2], operations, jitter, erased, _mixed(config, uniform, len(samples)))
    return Draws(*(torch.from_numpy(part.astype(np.float32)) for part in parts))


def _geometry(config: AugmentConfig, uniform: Uniform, count: int, share: float, most: float) -> Floats:
    """Crop, shift and flip as matrices (B, 3, 3)."""
    area, ratio = uniform(config.crop, most), np.exp(uniform(-ASPECT, ASPECT) / 2)
    wide, high = np.ones(count), np.ones(count)
    if config.crop < 1:
        wide, high = (np.minimum(1.0, np.sqrt(area) * r) for r in (ratio, 1 / ratio))
    elif share < 1:
        wide, high = wide * share, high * share
    left, top = (uniform(-1, 1) * (1 - side) * (config.crop < 1) for side in (wide, high))
    left, top = (place + 2 * uniform(-config.shift, config.shift) for place in (left, top))
    mirrored = np.where((uniform() < 0.5) & config.flip, -1.0, 1.0)
    zero, one = np.zeros(count), np.ones(count)
    return np.stack([wide * mirrored, zero, left, zero, high, top, zero, zero, one], 1).reshape(-1, 3, 3)


def _operation(config: AugmentConfig, uniform: Uniform) -> tuple[Floats, Floats]:
    """One random operation: a change of shape (B, 3, 3), and one of colours (B, 2), of which one does nothing."""
    which = np.floor(uniform(0, SHAPES + len(COLOURS))).astype(int)
    sign = np.where(uniform() < 0.5, -1.0, 1.0)
    drawn = uniform()
    strength = sign * (drawn if config.policy == "trivial" else config.magnitude)
    matrices = np.tile(np.eye(3), (len(which), 1, 1))
    moves = ((0, 1, SHEAR), (1, 0, SHEAR), (0, 2, 2 * TRANSLATE), (1, 2, 2 * TRANSLATE))
    for number, (row, column, most) in enumerate(moves):
        matrices[:, row, column] = np.where(which == number, strength * most, 0.0)
    angle = np.where(which == SHAPES - 1, strength * ROTATE, 0.0)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(-1, 2, 2)
    matrices[:, :2, :2] = matrices[:, :2, :2] @ turn
    return matrices, np.stack([np.where(which < SHAPES, 0, which - SHAPES), strength], 1)


def _box(uniform: Uniform, area: Floats) -> Floats:
    """A box of a share of the area at a random place, as left, top, right, bottom."""
    ratio = np.exp(uniform(-ASPECT, ASPECT) / 2)
    wide, high = (np.minimum(1.0, np.sqrt(area) * r) for r in (ratio, 1 / ratio))
    left, top = uniform() * (1 - wide), uniform() * (1 - high)
    return np.stack([left, top, left + wide, top + high], 1)


def _colour(uniform: Uniform) -> Floats:
    return np.stack([uniform() for _ in range(3)], 1)


def _mixed(config: AugmentConfig, uniform: Uniform, count: int) -> Floats:
    """The share of the first image and the box of the second."""
    found = np.tile([1.0, 0, 0, 0, 0], (count, 1))
    if not config.mixes:
        return found
    cut = uniform() < (0.5 if config.mixup > 0 and config.cutmix > 0 else float(config.cutmix > 0))
    drawn = uniform()
    found[:, 0] = np.where(cut, beta(config.cutmix, drawn), beta(config.mixup, drawn))
    boxes = _box(uniform, 1 - found[:, 0])
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    found[:, 0] = np.where(cut, 1 - area, found[:, 0])
    found[:, 1:] = np.where(cut[:, None], boxes, 0.0)
    return found


def beta(a: float, drawn: Floats) -> Floats:
    """Numbers with the distribution Beta(a, a), from numbers that are uniform between 0 and 1."""
    shares, below = _beta_quantiles(a) if a > 0 else (np.ones(2), np.array([0.0, 1.0]))
    upper = drawn > 0.5
    found = np.interp(np.where(upper, 1 - drawn, drawn), below, shares)
    return np.where(upper, 1 - found, found)


@cache
def _beta_quantiles(a: float) -> tuple[Floats, Floats]:
    """Numbers from 0 to 1/2, and the share of Beta(a, a) below each of them.

    For a < 1 the density is infinite at 0; that of r = x^a is not, so the integral is taken over r.
    """
    power = min(a, 1.0)
    r = np.linspace(0, 0.5**power, QUANTILES)
    x = r ** (1 / power)
    density = x ** (a - power) * (1 - x) ** (a - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return x, 0.5 * below / below[-1]


def apply(config: AugmentConfig, images: Tensor, draws: Draws, size: int) -> Tensor:
    """Stored bytes (B, C, R, R) to images (B, C, S, S) from 0 to 1. Nothing is mixed yet."""
    x = images.float() / 255
    moves = config.crop < 1 or config.shift > 0 or config.flip or config.policy != "none"
    if moves or x.shape[-1] != size:
        grid = F.affine_grid(draws.geometry, [len(x), x.shape[1], size, size], align_corners=False)
        x = F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    if config.policy != "none":
        for number in range(1 if config.policy == "trivial" else 2):
            x = _colours(x, draws.operations[:, number])
    if config.jitter:
        for change, factor in zip((_brightness, _contrast, _saturation), draws.jitter.unbind(1), strict=True):
            x = change(x, factor[:, None, None, None]).clamp(0, 1)
    if config.erase:
        colour = draws.erased[:, 4 : 4 + x.shape[1], None, None]
        x = torch.where(_inside(draws.erased, size)[:, None], colour, x)
    return x


def mix(x: Tensor, other: Tensor, mixed: Tensor) -> Tensor:
    """Images with a share, or a box, of other images."""
    share = mixed[:, 0, None, None, None]
    boxes = mixed[:, 1:]
    cut = (boxes[:, 2] > boxes[:, 0])[:, None, None, None]
    pasted = torch.where(_inside(boxes, x.shape[-1])[:, None], other, x)
    return torch.where(cut, pasted, share * x + (1 - share) * other)


def grey_or_solarized(x: Tensor, chosen: Tensor) -> Tensor:
    """Some images without colours, some with their bright pixels inverted; `chosen` (B, 2) is 1 for those."""
    grey, solarized = (each[:, None, None, None] > 0.5 for each in chosen.unbind(1))
    x = torch.where(grey, _grey(x).expand_as(x), x)
    return torch.where(solarized, _solarize(x, x.new_full((), 0.5)), x)


def middle(images: Tensor, size: int) -> Tensor:
    """Stored bytes (B, C, R, R) to the images (B, C, S, S) from 0 to 1 that a model is evaluated on."""
    edge = (images.shape[-1] - size) // 2
    return images[..., edge : edge + size, edge : edge + size].float() / 255


def _inside(boxes: Tensor, size: int) -> Tensor:
    """(B, S, S): whether the centre of a pixel is in the box."""
    place = (torch.arange(size, device=boxes.device) + 0.5) / size
    left, top, right, bottom = (side[:, None] for side in boxes[:, :4].unbind(1))
    return ((place >= top) & (place < bottom))[:, :, None] & ((place >= left) & (place < right))[:, None, :]


def _colours(x: Tensor, operations: Tensor) -> Tensor:
    """Each image through its own operation.

    On a CPU each operation sees only its own images. Elsewhere all see all: shapes stay static, nothing synchronises.
    """
    number, strength = operations[:, 0].round().long(), operations[:, 1, None, None, None]
    for place, operation in enumerate(COLOURS[1:], start=1):
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            rows = (number == place).nonzero()[:, 0]
            if len(rows):
                x = x.index_copy(0, rows, operation(x[rows], strength[rows]).clamp(0, 1))
        else:
            x = torch.where((number == place)[:, None, None, None], operation(x, strength).clamp(0, 1), x)
    return x


def _grey(x: Tensor) -> Tensor:
    """Luma (ITU-R 601), with the channel kept."""
    return x if x.shape[1] == 1 else 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def _brightness(x: Tensor, factor: Tensor) -> Tensor:
    return x * factor


def _contrast(x: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(_grey(x).mean((1, 2, 3), keepdim=True).expand_as(x), x, factor)


def _saturation(x: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(_grey(x).expand_as(x), x, factor)


def _enhance(change: Callable[[Tensor, Tensor], Tensor], x: Tensor, strength: Tensor) -> Tensor:
    return change(x, 1 + ENHANCE * strength)


def _sharpness(x: Tensor, strength: Tensor) -> Tensor:
    """Towards a blurred image, or away from it; the border stays."""
    inner = x[:, :, 1:-1, 1:-1]
    blurred = (9 * F.avg_pool2d(x, 3, 1) + 4 * inner) / 13  # the middle pixel counts five times
    return x + F.pad(blurred - inner, (1, 1, 1, 1)) * -ENHANCE * strength


def _posterize(x: Tensor, strength: Tensor) -> Tensor:
    """Four to eight bits."""
    levels = 2 ** (8 - (4 * strength.abs()).round())
    return (x * 255 / 256 * levels).floor() / levels * 256 / 255


def _solarize(x: Tensor, strength: Tensor) -> Tensor:
    return torch.where(x >= 1 - strength.abs(), 1 - x, x)


def _autocontrast(x: Tensor, strength: Tensor) -> Tensor:
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def _equalize(x: Tensor, strength: Tensor) -> Tensor:
    """Each channel with an even histogram."""
    levels = (x * 255).round().long().flatten(2)  # B C pixels
    counts = x.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, torch.ones_like(levels, dtype=x.dtype))
    below = counts.cumsum(2)
    least = below.gather(2, levels.amin(2, keepdim=True))
    spread = (below - least) / (levels.shape[2] - least).clamp(min=1)
    return torch.where(least.unflatten(2, (1, 1)) < levels.shape[2], spread.gather(2, levels).view_as(x), x)


COLOURS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, strength: x,
    partial(_enhance, _brightness),
    partial(_enhance, _saturation),
    partial(_enhance, _contrast),
    _sharpness,
    _posterize,
    _solarize,
    _autocontrast,
    _equalize,
)
"""Operations of a policy that change colours; the first does nothing."""
