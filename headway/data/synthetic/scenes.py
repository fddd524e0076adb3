"""Synthetic scenes: a picture of a coloured figure, and a sound that says what is asked of it.

A rising tone asks for the figure, a falling one for its colour. The picture alone leaves two possible labels; the sound
alone leaves all figures, or all colours.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.data.synthetic.pictures import make_pictures
from headway.data.synthetic.sounds import tones
from headway.errors import DataError

FIGURES = ("circle", "bar", "triangle", "cross")
COLOURS = ("red", "green", "blue", "yellow")
QUESTIONS = ("rising", "falling")
"""The sound that asks for the figure, and the one that asks for the colour."""
SECONDS = 0.5


@dataclass(frozen=True)
class Scene:
    """A picture, its sound, and the answer."""

    pixels: NDArray[np.uint8]
    """(3, height, width)"""
    samples: NDArray[np.float32]
    rate: int
    label: str


def make_scenes(count: int, seed: int = 0) -> list[Scene]:
    """Return `count` scenes; equal seeds give equal scenes."""
    rng = random.Random(seed)
    return [
        _scene(rng.choice(COLOURS), rng.choice(FIGURES), rng.choice(QUESTIONS), rng.getrandbits(31))
        for _ in range(count)
    ]


def scene_of(text: str) -> Scene:
    """The scene that words describe: `red circle,rising`."""
    words = text.replace(",", " ").split()
    choices = (COLOURS, FIGURES, QUESTIONS)
    if len(words) != 3 or any(word not in allowed for word, allowed in zip(words, choices, strict=True)):
        known = "; ".join(", ".join(allowed) for allowed in choices)
        raise DataError("D001", f"headway makes no scene {text[:40]!r}", f"name one of each: {known}")
    return _scene(words[0], words[1], words[2], 1)


def _scene(colour: str, figure: str, question: str, seed: int) -> Scene:
    where = {"sizes": ("large",), "places": ("in the middle",)}
    picture = make_pictures(1, seed, kinds=(figure,), colours=(colour,), **where)[0]
    tone = tones(1, seed, kinds=(question,), seconds=SECONDS)[0]
    return Scene(picture.pixels, tone.samples, tone.rate, (figure, colour)[QUESTIONS.index(question)])
