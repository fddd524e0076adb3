"""Heat maps over pictures: a colour map, maps of patches resampled to pixels, and sheets of pictures side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headway.data.images.decode import Pixels

STOPS = np.array(
    [[8, 10, 40], [70, 20, 110], [165, 40, 100], [230, 95, 45], [250, 180, 40], [255, 250, 190]], dtype=np.float64
)
"""Colours from the least to the most, evenly spread, each lighter than the one before: they print well in grey."""
SIDE = 288
"""Pixels that a picture of a sheet has at least."""
MOST = 0.75
"""The share of the hottest pixels that the colour has; the rest is the picture."""
Map = NDArray[np.float32]


def coloured(heat: Map) -> Pixels:
    """Values from 0 to 1 (height, width) as colours (height, width, 3)."""
    place = np.clip(heat, 0, 1) * (len(STOPS) - 1)
    low = np.minimum(place.astype(int), len(STOPS) - 2)
    share = (place - low)[..., None]
    found: Pixels = (STOPS[low] * (1 - share) + STOPS[low + 1] * share).round().astype(np.uint8)
    return found


def spread(values: Map) -> Map:
    """Values stretched to 0 … 1; a map without differences is all 0."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def smooth(values: Map, side: int) -> Map:
    """A small map resampled to side × side pixels, linearly between the centres of its cells."""
    for axis in (0, 1):
        count = values.shape[axis]
        place = np.clip((np.arange(side) + 0.5) * count / side - 0.5, 0, count - 1)
        low = np.minimum(place.astype(int), max(0, count - 2))
        share = (place - low).astype(np.float32)
        share = share[:, None] if axis == 0 else share[None]
        upper = values.take(np.minimum(low + 1, count - 1), axis)
        values = values.take(low, axis) * (1 - share) + upper * share
    return values


def picture(image: Pixels, least: int = SIDE) -> Pixels:
    """An image (channels, size, size) as a picture (side, side, 3), each pixel repeated so that people can see it."""
    shown = np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0)
    times = max(1, -(-least // shown.shape[0]))
    return np.ascontiguousarray(shown.repeat(times, 0).repeat(times, 1))


def overlaid(image: Pixels, values: Map, least: int = SIDE) -> Pixels:
    """A map of patches as colours over the image (channels, size, size) that it is of."""
    below = picture(image, least)
    heat = spread(smooth(values, len(below)))
    share = (MOST * heat**0.5)[..., None]  # what is cold stays the picture, darkened a little
    grey = below.astype(np.float32).mean(-1, keepdims=True) * 0.8
    found: Pixels = (grey * (1 - share) + coloured(heat) * share).round().astype(np.uint8)
    return found


def sheet(rows: Sequence[Sequence[Pixels]], gap: int = 8) -> Pixels:
    """Pictures of one size in rows, on white."""
    side, columns = len(rows[0][0]), max(len(row) for row in rows)
    whole = np.full((len(rows) * (side + gap) + gap, columns * (side + gap) + gap, 3), 255, dtype=np.uint8)
    for i, row in enumerate(rows):
        for j, each in enumerate(row):
            top, left = i * (side + gap) + gap, j * (side + gap) + gap
            whole[top : top + side, left : left + side] = each
    return whole


def beside(images: Iterable[Pixels], maps: Iterable[Map]) -> Pixels:
    """Each image, and to its right the same image under its map."""
    return sheet([[picture(image), overlaid(image, values)] for image, values in zip(images, maps, strict=True)])


def by_head(images: Iterable[Pixels], maps: Iterable[Iterable[Map]], columns: int = 6, side: int = SIDE) -> Pixels:
    """Each image, then the image under each of its maps; many maps take several rows."""
    rows = []
    for image, several in zip(images, maps, strict=True):
        pictures = [picture(image, side), *(overlaid(image, values, side) for values in several)]
        rows += [pictures[at : at + columns + 1] for at in range(0, len(pictures), columns + 1)]
    return sheet(rows)
