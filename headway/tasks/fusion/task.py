"""Images with sounds: the task, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from headway.config.networks.fusion import FusionConfig, FusionMode
from headway.config.networks.kinds import AnyConfig
from headway.config.ranges import Range, shares, within
from headway.config.recipe import DataConfig
from headway.data.files.readers import Flaw
from headway.data.files.rows import BadRows
from headway.errors import DataError, NotFoundError, counted
from headway.tasks.base import FineTuning, Json, Tries
from headway.tasks.image import LearnsImages
from headway.tasks.inputs import INPUT, Item, raw_rows, reject
from headway.tasks.media.task import label_lines

SCENE = "scene:"
"""`scene:red circle,rising` is a scene that headway makes, to try a model with."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `fusion` of a recipe."""

    mode: FusionMode = "early"
    """early: one stack reads the tokens of both; late: each has an encoder, and further blocks attend from the image to
    the sound; image and sound: one alone, to see what the other one adds."""
    rate: int = 0
    """Samples per second, to which all sounds are resampled; 0: 16,000, or as sounds are made up."""
    seconds: float = 0.0
    """Length of a clip; 0: so long that nine tenths of the sounds fit, and at most 10."""
    mels: int = 0
    """Bands of the log-mel spectrogram; 0: 80, or 48 below 16,000 samples per second."""
    patch_mels: int = 0
    """Height of a patch of the spectrogram in bands; 0: all of them. model.patch is the side of those of the image."""
    patch_frames: int = 5
    """Width of a patch of the spectrogram in frames of 10 ms."""
    dropout: float = 0.0
    """Dropout before the classifier."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all labels (Szegedy et al. 2016)."""

    def __post_init__(self) -> None:
        shares("fusion", self, "dropout", "label_smoothing")
        within("fusion", self, Range(0, 192_000), "rate")
        within("fusion", self, Range(0, 60), "seconds")
        within("fusion", self, Range(0, 256), "mels", "patch_mels")
        within("fusion", self, Range(1, 6000), "patch_frames")


@dataclass(frozen=True, slots=True)
class FusionExample:
    """An image with its sound: both are decoded when they are used."""

    image: Any
    sound: Any
    name: str = ""


class Fusion(LearnsImages):
    """One label for an image with its sound."""

    name, title, noun = "fusion", "classification of images with sounds", "classifier of images with sounds"
    beside = "sounds"
    Settings = Settings
    tries = Tries("scene:red circle,rising", own="photo.jpg,clip.wav", request={"input": "scene:red circle,rising"})
    made_up = "pictures and sounds that headway makes"
    made_up_sizes: ClassVar[Mapping[str, Any]] = {**LearnsImages.made_up_sizes, "fusion.patch_frames": 5}
    fine_tuning = FineTuning(lr=5e-5)
    takes, joined = "image", "sound"
    training = "headway.tasks.fusion.training:FusionTraining"
    predictor = "headway.tasks.fusion.predict:FusionPredictor"

    def files(self, spec: str) -> list[Path]:
        from headway.data.sounds.rows import sound_files

        return list(dict.fromkeys([*super().files(spec), *sound_files(spec)]))

    def left_out(self, spec: str) -> str:
        """Each kind of files is left out by the reader of the other."""
        from headway.data.images.rows import other_files as no_images
        from headway.data.sounds.rows import other_files as no_sounds

        neither = set(no_sounds(spec))
        names = [name for name in no_images(spec) if name in neither]
        what = "no images or sounds"
        return f"{counted(len(names), 'files')} left out, {what}: {', '.join(names[:3])}" if names else ""

    def parse(self, raw: Mapping[str, Any]) -> FusionExample:
        """An input is two paths with a comma between them, or a scene that headway makes."""
        return parse_pair(raw, Path(), DataConfig())

    def parse_request(self, raw: Mapping[str, Any]) -> FusionExample:
        """Base64 of both: {"input": {"image": …, "sound": …}}. A client must not read files of the server."""
        return parse_pair(raw, None, DataConfig())

    def inputs(
        self, source: str | BinaryIO, data: DataConfig, bad: BadRows, *, firm: bool = False, context: str | None = None
    ) -> Iterator[Item]:
        """Rows of a table, with paths beside it; or lines of a text file or pipe, with paths from here."""
        for row in raw_rows(source):
            if isinstance(row, Flaw):
                reject(row, bad)
                continue
            folder = Path() if INPUT in row.values or not isinstance(source, str) else Path(row.file).parent
            try:
                example = parse_pair(row.values, folder, data)
            except (DataError, NotFoundError) as error:
                reject(Flaw(row.file, row.line, error.message, code=error.code), bad)
                continue
            yield Item(example, row.file, row.line, _plain(row.values))

    def echo(self, example: FusionExample) -> Json:
        return {"input": example.name} if example.name else {}

    def fits(self, config: AnyConfig, special: Iterable[str] | None = None) -> bool:
        return isinstance(config, FusionConfig)

    def render(self, found: Sequence[tuple[FusionExample, Json]], *, colours: bool) -> Iterator[str]:
        return label_lines([(example.name, result) for example, result in found])


def parse_pair(raw: Mapping[str, Any], folder: Path | None, data: DataConfig) -> FusionExample:
    """An image with its sound, of a row, a request or an argument. Without a folder no path is read."""
    from headway.data.files.columns import IMAGE, SOUND_NAMES
    from headway.data.images.rows import parse_image
    from headway.data.sounds.rows import parse_sound
    from headway.data.synthetic.scenes import scene_of

    given = raw.get(INPUT)
    if isinstance(given, Mapping):
        raw = given
    elif isinstance(given, str) and given.startswith(SCENE):
        scene = scene_of(given.removeprefix(SCENE))
        return FusionExample(scene.pixels.transpose(1, 2, 0), (scene.samples, scene.rate), given)
    elif isinstance(given, str) and given.count(",") == 1:
        raw = dict(zip(("image", "sound"), map(str.strip, given.split(",")), strict=True))
    image = _first(raw, (data.image, *IMAGE.names))
    sound = _first(raw, (data.sound, *SOUND_NAMES))
    if image is None or sound is None:
        hint = "IMAGE,SOUND; in rows and requests: fields image and sound"
        raise DataError("D001", f"no {'image' if image is None else 'sound'}: both are needed", hint)
    name = f"{image},{sound}" if folder is not None and isinstance(image, str) and isinstance(sound, str) else ""
    return FusionExample(parse_image(image, folder), parse_sound(sound, folder), name)


def _first(raw: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The value of the first field with one of these names."""
    lower = {key.lower(): value for key, value in raw.items()}
    return next((lower[name.lower()] for name in names if lower.get(name.lower()) is not None), None)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The other columns of a row, without those that hold files."""
    return {name: value for name, value in values.items() if name != INPUT and not isinstance(value, bytes | Mapping)}
