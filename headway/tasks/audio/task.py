"""Tasks that read sounds: how a path, a row, a folder or a request becomes a sound. No torch here."""

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
    from headway.data.profile.survey import Survey
    from headway.data.sounds.rows import SoundRow


SOUND_FRONTS = ("frames", "samples")
"""Kinds of front ends that read sounds alone; one that reads patches says what is in them."""


@dataclass(frozen=True, slots=True)
class SoundExample:
    """A sound to predict something for: it is decoded when it is used."""

    sound: Any
    """A path, the bytes of a file, samples, or samples with their rate."""
    name: str = ""
    start: float = 0.0
    end: float | None = None
    """The segment that is meant, in seconds; None: to the end."""


class LearnsSounds(LearnsMedia):
    """A task that is trained on sounds."""

    learns = "sound"
    rows_module = "headway.data.sounds.rows"
    beside: ClassVar[Literal["labels", "texts"]] = "labels"
    """What each sound needs beside it, so that the task can learn from it."""

    def suits(self, survey: Survey, rows: Sequence[Row]) -> Suitability:
        return Suitability(0.0)

    def files(self, spec: str) -> list[Path]:
        from headway.data.sounds.rows import sound_files

        return sound_files(spec)


class SoundTask(LearnsSounds, MediaTask[SoundExample]):
    """A task whose inputs are sounds."""

    takes = "sound"
    prefix = "played:"

    @property
    def columns(self) -> tuple[str, ...]:
        from headway.data.sounds.rows import SOUND_COLUMNS

        return SOUND_COLUMNS

    def value(self, value: Any, folder: Path | None) -> Any:
        from headway.data.sounds.rows import parse_sound

        return parse_sound(value, folder)

    def example(self, source: Any, name: str, raw: Mapping[str, Any]) -> SoundExample:
        from headway.data.files.columns import END, START
        from headway.data.sounds.rows import time_of

        given = {name.lower(): value for name, value in raw.items()}
        start, end = (
            time_of(next((given[name] for name in role.names if name in given), None)) for role in (START, END)
        )
        return SoundExample(source, name, start or 0.0, end)

    def example_of_row(self, row: SoundRow) -> SoundExample:
        name = row.sound if isinstance(row.sound, str) else row.shown
        return SoundExample(row.sound, name, row.start, row.end)

    def is_one(self, source: str) -> bool:
        return is_sound_name(source)

    def echo(self, example: SoundExample) -> Json:
        segment = {} if example.start == 0 and example.end is None else {"start": example.start, "end": example.end}
        return {**({"sound": example.name} if example.name else {}), **segment}


def is_sound_name(name: str) -> bool:
    """Whether a file's name ends as those of sounds do."""
    from headway.data.sounds.rows import SUFFIXES

    return Path(name).suffix.lower() in SUFFIXES


def reads_sounds(config: AnyConfig) -> bool:
    """Whether a model's input is spectrograms of sounds alone, as patches."""
    return not isinstance(config, FusionConfig) and getattr(config.source, "holds", "") == "log_mel"


def hears(config: AnyConfig) -> bool:
    """Whether a model's input is sounds in any form: spectrograms as patches, as frames, or samples."""
    return reads_sounds(config) or getattr(config.source, "kind", "") in SOUND_FRONTS


def sound_of(sound: Any, number: int) -> SoundExample:
    """A sound that Python hands in: a path, bytes, samples at 16 kHz, or samples and their rate."""
    if isinstance(sound, str | Path):
        if not Path(sound).is_file():
            raise NotFoundError("F001", f"no such file: {sound}")
        return SoundExample(str(sound), str(sound))
    if sound is None or isinstance(sound, bool | int | float):
        raise DataError("D001", f"sound {number}: expected a path, bytes, samples, or samples and their rate")
    return SoundExample(sound, f"sound {number}")
