"""Tasks that read images: how a path, a row, a folder or a request becomes an image. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal

from headway.config.networks.kinds import AnyConfig
from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw, Row
from headway.data.files.rows import BadRows
from headway.errors import DataError, HeadwayError, NotFoundError, counted
from headway.tasks.base import Json, Suitability, Task
from headway.tasks.inputs import INPUT, Item, parsed, raw_rows, reject

if TYPE_CHECKING:
    from headway.data.profile.survey import Survey


@dataclass(frozen=True, slots=True)
class ImageExample:
    """An image to predict something for: it is decoded when it is used."""

    image: Any
    """A path, the bytes of a file, an array, or an image of Pillow."""
    name: str = ""


class LearnsImages(Task):
    """A task that is trained on images."""

    learns = "image"
    beside: ClassVar[Literal["labels", "captions", ""]] = ""
    """What each image needs beside it, so that the task can learn from it."""

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        return Suitability(0.0)

    def count(self, data: DataConfig) -> int | None:
        from headway.data.images.rows import ImageRow, find_parts, read_rows

        try:
            rows = read_rows(find_parts(data.train).get("train", data.train), data)
            return sum(isinstance(row, ImageRow) for row in rows)
        except HeadwayError:  # training will say why
            return None

    def left_out(self, spec: str) -> str:
        from headway.data.images.rows import other_files

        names = other_files(spec)
        return f"{counted(len(names), 'files')} left out, no images: {', '.join(names[:3])}" if names else ""

    def files(self, spec: str) -> list[Path]:
        from headway.data.images.rows import image_files

        return image_files(spec)


class ImageTask(LearnsImages):
    """A task whose inputs are images."""

    takes = "image"

    def parse(self, raw: Mapping[str, Any]) -> ImageExample:
        """A path is one of this machine."""
        return self._parse(raw, Path())

    def parse_request(self, raw: Mapping[str, Any]) -> ImageExample:
        """Base64 only: a client must not read files of the server."""
        return self._parse(raw, None)

    def _parse(self, raw: Mapping[str, Any], folder: Path | None) -> ImageExample:
        from headway.data.images.rows import DRAWN, IMAGE_COLUMNS, parse_image

        value = next((raw[name] for name in (INPUT, *IMAGE_COLUMNS) if raw.get(name) is not None), None)
        image = parse_image(value, folder)
        named = isinstance(value, str) and (isinstance(image, str) or value.startswith(DRAWN))
        return ImageExample(image, str(value) if named else "")

    def echo(self, example: ImageExample) -> Json:
        return {"image": example.name} if example.name else {}

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """Images of a folder, a table, arrays, or a list of paths in a text file or a pipe."""
        from headway.data.files.locate import file_format
        from headway.data.images.rows import read_rows
        from headway.data.media.listing import TABLES

        listed = not isinstance(source, str) or (
            Path(source).is_file()
            and file_format(source)[0] == "text"
            and "idx" not in source
            and source[-4:] != ".npz"
        )
        if listed and not (isinstance(source, str) and is_image_name(source)):
            yield from parsed(raw_rows(source), self.parse, bad)
            return
        assert isinstance(source, str)
        table = Path(source).is_file() and file_format(source)[0] in TABLES
        for row in read_rows(source, data):
            if isinstance(row, Flaw):
                reject(row, bad)
                continue
            name = row.image if isinstance(row.image, str) else row.shown
            more = {"label": row.label} if row.label is not None else {}
            yield Item(ImageExample(row.image, name), row.file, row.line if table or row.line else 0, more)


def is_image_name(name: str) -> bool:
    """Whether a file's name ends as those of images do."""
    from headway.data.images.rows import SUFFIXES

    return Path(name).suffix.lower() in SUFFIXES


def reads_images(config: AnyConfig) -> bool:
    """Whether a model's input is images."""
    return getattr(config.source, "kind", "") == "patches"


def example_of(image: Any, number: int) -> ImageExample:
    """An image that Python hands in: a path, bytes, an array, or an image of Pillow."""
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise NotFoundError("F001", f"no such file: {image}")
        return ImageExample(str(image), str(image))
    if image is None or isinstance(image, bool | int | float):
        raise DataError("D001", f"image {number}: expected a path, bytes, an array or an image of Pillow")
    return ImageExample(image, f"image {number}")
