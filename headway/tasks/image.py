"""Tasks that read images: how a path, a row, a folder or a request becomes an image. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headway.config.networks.fusion import FusionConfig
from headway.config.networks.kinds import AnyConfig
from headway.data.files.readers import Row
from headway.errors import DataError, NotFoundError
from headway.tasks.base import Json, Suitability
from headway.tasks.media.task import LearnsMedia, MediaTask

if TYPE_CHECKING:
    from headway.data.images.rows import ImageRow
    from headway.data.profile.survey import Survey


@dataclass(frozen=True, slots=True)
class ImageExample:
    """An image to predict something for: it is decoded when it is used."""

    image: Any
    """A path, the bytes of a file, an array, or an image of Pillow."""
    name: str = ""


class LearnsImages(LearnsMedia):
    """A task that is trained on images."""

    learns = "image"
    rows_module = "headway.data.images.rows"
    made_up_sizes: ClassVar[Mapping[str, Any]] = {"model.patch": 0, "data.size": 0}
    beside: ClassVar[Literal["labels", "captions", "sounds", ""]] = ""
    """What each image needs beside it, so that the task can learn from it."""

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        return Suitability(0.0)

    def files(self, spec: str) -> list[Path]:
        from headway.data.images.rows import image_files

        return image_files(spec)


class ImageTask(LearnsImages, MediaTask[ImageExample]):
    """A task whose inputs are images."""

    takes = "image"
    prefix = "drawn:"

    @property
    def columns(self) -> tuple[str, ...]:
        from headway.data.images.rows import IMAGE_COLUMNS

        return IMAGE_COLUMNS

    def value(self, value: Any, folder: Path | None) -> Any:
        from headway.data.images.rows import parse_image

        return parse_image(value, folder)

    def example(self, source: Any, name: str, raw: Mapping[str, Any]) -> ImageExample:
        return ImageExample(source, name)

    def example_of_row(self, row: ImageRow) -> ImageExample:
        return ImageExample(row.image, row.image if isinstance(row.image, str) else row.shown)

    def is_one(self, source: str) -> bool:
        return is_image_name(source) or "idx" in source or source[-4:] == ".npz"

    def echo(self, example: ImageExample) -> Json:
        return {"image": example.name} if example.name else {}


def is_image_name(name: str) -> bool:
    """Whether a file's name ends as those of images do."""
    from headway.data.images.rows import SUFFIXES

    return Path(name).suffix.lower() in SUFFIXES


def reads_images(config: AnyConfig) -> bool:
    """Whether a model's input is images alone."""
    return not isinstance(config, FusionConfig) and getattr(config.source, "holds", "") == "images"


def example_of(image: Any, number: int) -> ImageExample:
    """An image that Python hands in: a path, bytes, an array, or an image of Pillow."""
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise NotFoundError("F001", f"no such file: {image}")
        return ImageExample(str(image), str(image))
    if image is None or isinstance(image, bool | int | float):
        raise DataError("D001", f"image {number}: expected a path, bytes, an array or an image of Pillow")
    return ImageExample(image, f"image {number}")
