"""Synthetic pictures: digits and shapes with colour, size and place, and a sentence that describes each of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIDE, FINE = 32, 3
"""Side of a picture in pixels, and the points along each side of a pixel at which a shape is looked at."""
COLOURS = {
    "red": (214, 48, 49), "green": (39, 174, 96), "blue": (41, 98, 220), "yellow": (241, 196, 15),
    "purple": (142, 68, 173), "orange": (230, 120, 34), "white": (245, 245, 245), "cyan": (26, 188, 200),
}  # fmt: skip
SIZES = {"small": 7.0, "large": 10.5}
"""Half of the height of a figure, in pixels."""
PLACES = {
    "at the top left": (-1, -1), "at the top right": (1, -1), "in the middle": (0, 0),
    "at the bottom left": (-1, 1), "at the bottom right": (1, 1),
}  # fmt: skip
DIGITS = {
    "0": "01110 10001 10011 10101 11001 10001 01110", "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111", "3": "11111 00010 00100 00010 00001 10001 01110",
    "4": "00010 00110 01010 10010 11111 00010 00010", "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110", "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110", "9": "01110 10001 10001 01111 00001 00010 01100",
}  # fmt: skip
"""Rows of five dots."""
Points = NDArray[np.float64]
SHAPES: dict[str, Callable[[Points, Points], NDArray[np.bool_]]] = {
    "circle": lambda x, y: x**2 + y**2 < 1,
    "ring": lambda x, y: (x**2 + y**2 < 1) & (x**2 + y**2 > 0.4),
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.85,
    "triangle": lambda x, y: (y < 0.85) & (abs(x) < (y + 1) * 0.53),
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 0.95),
    "bar": lambda x, y: (abs(y) < 0.35) & (abs(x) < 1),
}
"""Whether a point of the square from -1 to 1 is inside; y grows downwards."""
KINDS = (*SHAPES, *DIGITS)
NOISE, TILT, WANDER = 18.0, 0.25, 2.0
"""Deviation of the background, the largest tilt in radians, and the largest distance from a place in pixels."""


@dataclass(frozen=True)
class Picture:
    """A picture, what it shows, and a sentence about it."""

    pixels: NDArray[np.uint8]
    """(3, SIDE, SIDE)"""
    kind: str
    caption: str


def make_pictures(
    count: int,
    seed: int = 0,
    kinds: Sequence[str] = KINDS,
    sizes: Sequence[str] = tuple(SIZES),
    places: Sequence[str] = tuple(PLACES),
    colours: Sequence[str] = tuple(COLOURS),
) -> list[Picture]:
    """Return `count` pictures; equal seeds give equal pictures."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    found = []
    for number in range(count):
        colour, size, place = rng.choice(colours), rng.choice(sizes), rng.choice(places)
        found.append(_picture(rng, noise, kinds[number % len(kinds)], colour, size, place))
    return found


def _picture(rng: random.Random, noise: np.random.Generator, kind: str, colour: str, size: str, place: str) -> Picture:
    half, room = SIZES[size], SIDE / 2 - SIZES[size]
    middle = [SIDE / 2 + side * min(room, SIDE / 4) + rng.uniform(-WANDER, WANDER) for side in PLACES[place]]
    tilt = rng.uniform(-TILT, TILT)
    at = (np.arange(SIDE * FINE) + 0.5) / FINE
    x, y = (at[None, :] - middle[0]) / half, (at[:, None] - middle[1]) / half
    x, y = np.cos(tilt) * x + np.sin(tilt) * y, np.cos(tilt) * y - np.sin(tilt) * x
    inside = _digit(DIGITS[kind], x, y) if kind in DIGITS else SHAPES[kind](x, y)
    cover = inside.reshape(SIDE, FINE, SIDE, FINE).mean((1, 3))[None]
    ground = rng.uniform(15, 70) + NOISE * noise.standard_normal((3, SIDE, SIDE))
    ink = np.array(COLOURS[colour])[:, None, None]
    pixels = (ground * (1 - cover) + ink * cover).round().clip(0, 255).astype(np.uint8)
    name = f"digit {kind}" if kind in DIGITS else kind
    return Picture(pixels, kind, f"a {size} {colour} {name} {place}")


def _digit(rows: str, x: Points, y: Points) -> NDArray[np.bool_]:
    """The dots of a digit, seven high and five wide."""
    dots = np.array([[dot == "1" for dot in row] for row in rows.split()])
    row, column = np.floor((y + 1) * 3.5).astype(int), np.floor(x * 3.5 + 2.5).astype(int)
    there = (row >= 0) & (row < 7) & (column >= 0) & (column < 5)
    found: NDArray[np.bool_] = there & dots[row.clip(0, 6), column.clip(0, 4)]
    return found
