"""Images with their sounds: two stores of the same rows, joined by file and line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.config.recipe import DataConfig
from headway.data.datasets.labeled import hold_out
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.data.images.preprocess import Preprocess
from headway.data.images.rows import ImageRow, find_parts
from headway.data.images.store import ImageStore
from headway.data.sounds.decode import RATE
from headway.data.sounds.preprocess import SoundPreprocess
from headway.data.sounds.rows import SoundRow
from headway.data.sounds.store import Pcm, SoundStore
from headway.data.synthetic.pictures import Picture
from headway.data.synthetic.scenes import make_scenes
from headway.data.synthetic.sounds import Tone
from headway.errors import ConfigError
from headway.tasks.audio.data import Sounds, chosen, made_store, measured
from headway.tasks.audio.data import file_to_try as sound_to_try
from headway.tasks.audio.data import read_store as read_sounds
from headway.tasks.recipe import Recipe
from headway.tasks.vision.data import Images, choose_preprocess, drawn_store
from headway.tasks.vision.data import file_to_try as image_to_try
from headway.tasks.vision.data import measured as measured_images
from headway.tasks.vision.data import read_store as read_images

MADE_UP = 3600
"""Scenes that are made up where no data are given."""


@dataclass(frozen=True)
class Pairs:
    """Images, each with its sound."""

    images: Images
    sounds: Sounds

    def __len__(self) -> int:
        return len(self.images)

    @property
    def rows(self) -> list[ImageRow]:
        """With the labels."""
        return self.images.rows

    @property
    def digest(self) -> str:
        """SHA-256 of all images and sounds."""
        both = self.images.store.digest + self.sounds.store.digest
        return hashlib.sha256(both.encode()).hexdigest()

    def pcm(self) -> list[Pcm]:
        return [self.sounds.pcm(i) for i in range(len(self))]


@dataclass(frozen=True)
class FusionData:
    """The images and sounds of a run."""

    image: Preprocess
    sound: SoundPreprocess
    train: Pairs
    valid: Pairs
    test: str
    """A spec of test data; empty if there are none."""
    about: dict[str, Any]


Usable = Callable[[Sequence[ImageRow]], list[ImageRow]]
"""Keeps the rows that the task can learn from, and may change labels."""


def load_pairs(recipe: Recipe, bad: BadRows, usable: Usable) -> FusionData:
    """Read the images and sounds of a recipe."""
    data = recipe.data
    if recipe.model.from_:
        raise ConfigError("C004", "model.from: task fusion trains new models only")
    parts = find_parts(data.train) if data.train else {}
    spec, valid, test = parts.get("train", data.train), data.valid or parts.get("valid", ""), data.test
    image = choose_preprocess(recipe, spec)
    rate = recipe.settings.rate or (RATE if spec else make_scenes(1)[0].rate)
    whole = read_pairs(spec, data, image, rate, bad) if spec else made_pairs(image, rate)
    if valid:
        train = some_pairs(whole, usable(whole.rows))
        held = read_pairs(valid, data, image, rate, bad)
        second = some_pairs(held, usable(held.rows))
    else:
        train, second = (some_pairs(whole, rows) for rows in hold_out(usable(whole.rows)))
    image = measured_images(image, train.images.store)
    sound = measured(chosen(recipe, rate, train.sounds), train.sounds)
    about = {"train": data.train, "valid": valid, "fingerprint": whole.digest, "bad_rows": bad.count}
    return FusionData(image, sound, train, second, test or parts.get("test", ""), about)


def pair_to_try(pairs: Pairs, data: DataConfig) -> str:
    """The files of a held-out pair; empty where a table holds bytes."""
    both = image_to_try(pairs.images, data), sound_to_try(pairs.sounds.rows[0], data)
    return ",".join(both) if all(both) else ""


def read_pairs(spec: str, data: DataConfig, image: Preprocess, rate: int, bad: BadRows) -> Pairs:
    """The rows of a spec whose image and sound can both be used; `bad` takes the others, once each."""
    images, sounds = (read_images(spec, data, image, BadRows("skip")), read_sounds(spec, data, rate, BadRows("skip")))
    flaws = {(flaw.file, flaw.line): flaw for flaw in (*sounds.flaws, *images.flaws)}
    for flaw in sorted(flaws.values(), key=_place):
        bad.add(flaw)
    if not (pairs := _joined(images, sounds)):
        raise bad.no_rows(spec, "images with sounds")
    return pairs


def _joined(images: ImageStore, sounds: SoundStore) -> Pairs:
    """The rows that both have."""
    there = {_place(row): row for row in sounds.rows}
    both = [(row, there[_place(row)]) for row in images.rows if _place(row) in there]
    return Pairs(Images(images, [a for a, _ in both]), Sounds(sounds, [b for _, b in both]))


def _place(row: ImageRow | SoundRow | Flaw) -> tuple[str, int]:
    return row.file, row.line


def made_pairs(image: Preprocess, rate: int) -> Pairs:
    """Scenes that headway makes."""
    scenes = make_scenes(MADE_UP)
    images = drawn_store(image.resize, lambda count: [Picture(scene.pixels, scene.label, "") for scene in scenes])
    return _joined(images, made_store([Tone(scene.samples, scene.rate, scene.label) for scene in scenes], rate))


def some_pairs(pairs: Pairs, rows: Sequence[ImageRow]) -> Pairs:
    """The pairs of some of the rows, with their labels."""
    sounds = {row.place: sound for row, sound in zip(pairs.rows, pairs.sounds.rows, strict=True)}
    return Pairs(
        Images(pairs.images.store, list(rows)), Sounds(pairs.sounds.store, [sounds[row.place] for row in rows])
    )
