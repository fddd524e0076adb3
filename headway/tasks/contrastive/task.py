"""Contrastive learning of images and texts: the task, without torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.config.augment import AugmentConfig
from headway.config.networks.kinds import AnyConfig
from headway.config.networks.towers import TwoTowersConfig
from headway.config.ranges import above_zero, at_least, conflict
from headway.errors import DataError
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.image import ImageExample, ImageTask, is_image_name
from headway.tasks.inputs import INPUT
from headway.tasks.text import shortened


@dataclass(frozen=True, kw_only=True)
class Settings(AugmentConfig):
    """Section `contrastive` of a recipe."""

    temperature: float = 0.07
    """Divides the cosines before the softmax; it is learned, and this is its first value."""
    projection: int = 0
    """Width of the space that images and texts share; 0: as wide as the model."""

    def __post_init__(self) -> None:
        self.check_augment("contrastive")
        above_zero("contrastive", self, "temperature")
        at_least("contrastive", self, projection=0)
        if self.mixes:
            name = "mixup" if self.mixup else "cutmix"
            value = f"contrastive.{name} = {getattr(self, name)}"
            raise conflict(value, "task = contrastive", "captions cannot be mixed")


@dataclass(frozen=True, slots=True)
class LabelledImage(ImageExample):
    """An image, and the texts to choose among for it."""

    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text beside images."""

    text: str


class Contrastive(ImageTask):
    """Images and texts as vectors of one space, in which an image is near the texts that describe it."""

    name, title, noun = "contrastive", "contrastive image–text learning", "image–text model"
    beside = "captions"
    pipeline_tag = "zero-shot-image-classification"
    Settings = Settings
    tries = Tries(
        'drawn:circle --labels "a circle,a square,a digit"',
        own='photo.jpg --labels "a cat,a dog"',
        request={"input": "drawn:circle"},
    )
    made_up = "pictures that headway draws, with captions"
    options = frozenset({"top", "nearest", "labels"})
    fine_tuning = FineTuning(lr=2e-5, epochs=(1, 10), batch=64, keep_best=True)
    training = "headway.tasks.contrastive.training:ContrastiveTraining"
    predictor = "headway.tasks.contrastive.predict:ContrastivePredictor"

    def parse(self, raw: Mapping[str, Any]) -> ImageExample | Phrase:  # type: ignore[override]
        """`text` is a text. An `input` is an image where it names one, else a text."""
        given = raw.get(INPUT)
        if isinstance(given, str) and not _names_image(given):
            return _phrase(given)
        return self._with_labels(raw, Path())

    def parse_request(self, raw: Mapping[str, Any]) -> ImageExample | Phrase:  # type: ignore[override]
        """The same, but an image is base64, which has no spaces; a text of one word comes as `text`."""
        given = raw.get(INPUT)
        if isinstance(given, str) and len(given.split()) > 1:
            return _phrase(given)
        return self._with_labels(raw, None)

    def _with_labels(self, raw: Mapping[str, Any], folder: Path | None) -> ImageExample | Phrase:
        from headway.data.images.rows import IMAGE_COLUMNS

        if isinstance(raw.get("text"), str) and all(raw.get(name) is None for name in (INPUT, *IMAGE_COLUMNS)):
            return _phrase(raw["text"])
        found = self._parse(raw, folder)
        return LabelledImage(found.image, found.name, parse_labels(raw["labels"])) if raw.get("labels") else found

    def echo(self, example: ImageExample | Phrase) -> Json:
        return {"text": example.text} if isinstance(example, Phrase) else super().echo(example)

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, TwoTowersConfig)

    def render(self, found: Sequence[tuple[ImageExample | Phrase, Json]], *, colours: bool) -> Iterator[str]:
        for example, result in found:
            name = shortened(example.text, 60) if isinstance(example, Phrase) else example.name
            if "label" in result:
                yield f"{result['probability']:6.1%}  {result['label']}  {name}"
                others = sorted(result["probabilities"].items(), key=lambda pair: -pair[1])[1:4]
                yield from (f"{share:6.1%}  {label}" for label, share in others)
            else:
                numbers = " ".join(f"{value:+.4f}" for value in result["embedding"][:6])
                yield f"{len(result['embedding'])} numbers  {numbers} …  {name}"


def parse_labels(given: Any) -> tuple[str, ...]:
    """Texts to choose among: a list, or one text with commas between them."""
    several = given.split(",") if isinstance(given, str) else given
    if not isinstance(several, list | tuple) or not all(isinstance(each, str) for each in several):
        raise DataError("D001", "labels are a list of texts, or texts with commas between them")
    labels = tuple(dict.fromkeys(each.strip() for each in several if each.strip()))
    if len(labels) < 2:
        raise DataError("D001", f"{len(labels)} of 2 labels or more: there is nothing to choose")
    return labels


def _phrase(text: str) -> Phrase:
    if not text.strip():
        raise DataError("D001", "a text is empty")
    return Phrase(text)


def _names_image(given: str) -> bool:
    from headway.data.images.rows import DRAWN
    from headway.data.media.values import DATA_URL

    if DATA_URL.match(given) or given.startswith(DRAWN):
        return True
    return is_image_name(given) or (given.isprintable() and not Path(given).suffix and os.path.isfile(given))
