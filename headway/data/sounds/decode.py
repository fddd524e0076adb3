"""Sounds decoded to mono samples: WAV by headway's own reader, other formats by the package soundfile."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from headway.data.sounds.wav import OtherEncodingError, Wav, WavError, read_header
from headway.errors import DataError, NotFoundError, counted
from headway.jsonfile import show, unreadable

Samples = NDArray[np.float32]
"""(n,), mono, from -1 to 1"""
RATE = 16_000
"""Samples per second of an array that comes without its rate."""
RATES, CHANNELS = (100, 768_000), 256
"""Rates and channels outside these bounds stop a hostile header before it allocates anything."""
MOST_IN_FILE, MOST_IN_BYTES = 1 << 29, 1 << 26
"""Samples that are decoded of a file, and of bytes, which may come from a client: a small file can hold hours."""
FEWEST = 2
"""Samples of a sound; one is no sound."""
LOUDEST = 1e6
"""The largest sample of a file of floats, whose usual bound is 1: squares of more are no numbers."""
SLACK = 0.1
"""Seconds by which the end of a segment may be rounded past the end of its sound."""
BLOCK = 1 << 20
"""Values that are decoded at a time, before channels are averaged."""
MAGIC = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff", b"riff")
"""The first bytes of the formats that soundfile knows; MP3 files without a tag begin with eleven ones."""


@dataclass(frozen=True)
class Sound:
    """Mono samples."""

    samples: Samples
    rate: int
    """Samples per second."""
    channels: int = 1
    """Channels of the file, which were averaged."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


class _Reader(Protocol):
    """An opened sound of which any part can be read."""

    rate: int
    channels: int
    frames: int

    def read(self, first: int, count: int) -> NDArray[np.float32]: ...


def open_sound(source: Any, shown: str = "") -> Sound:
    """A sound from a path, the bytes of a file, an array, or a pair of an array and its rate.

    A `DataError` says why it cannot be read; `shown` is what it calls a sound without a path.
    """
    return read_seconds(source, 0.0, None, shown)


def read_seconds(source: Any, start: float, end: float | None, shown: str = "") -> Sound:
    """The part of a sound between two times; None: to its end. Nothing else is decoded."""
    where = shown or (show(source) if isinstance(source, str | Path) else "the sound")
    limit = MOST_IN_FILE if isinstance(source, str | Path) else MOST_IN_BYTES
    try:
        with _opened(source, where) as reader:
            _check_header(reader, where)
            first, count = _frames(reader, start, end, where)
            if count > limit:
                what = f"{where} has {count / reader.rate / 60:,.0f} minutes at {reader.rate:,} Hz"
                hint = f"headway decodes up to {limit:,} samples at a time; cut the file, or give start and end"
                raise DataError("D001", what, hint)
            samples = _read_mono(reader, first, count)
            found = Sound(samples, reader.rate, reader.channels)
    except WavError as error:
        raise DataError("D001", f"{where}: {error}") from None
    except FileNotFoundError:
        raise NotFoundError("F001", f"no such file: {where}") from None
    except OSError as error:
        raise unreadable(Path(str(source)), error) from None
    _check_samples(found, where)
    return found


def _read_mono(reader: _Reader, first: int, count: int) -> Samples:
    """The mean of all channels, in blocks: only one block has them all in memory."""
    mono, step = np.empty(count, np.float32), max(1, BLOCK // reader.channels)
    for at in range(0, count, step):
        block = reader.read(first + at, min(step, count - at))
        if len(block) < min(step, count - at):
            raise WavError("the file ends within its samples")
        mono[at : at + len(block)] = block[:, 0] if block.shape[1] == 1 else block.mean(1, dtype=np.float64)
    return mono


def _check_header(reader: _Reader, where: str) -> None:
    low, high = RATES
    if not low <= reader.rate <= high:
        raise DataError("D001", f"{where} claims {reader.rate:,} samples per second; headway reads {low} … {high:,}")
    if not 1 <= reader.channels <= CHANNELS:
        raise DataError("D001", f"{where} claims {reader.channels:,} channels; headway reads 1 … {CHANNELS}")


def _frames(reader: _Reader, start: float, end: float | None, where: str) -> tuple[int, int]:
    """The first sample of a segment and how many it has."""
    whole = reader.frames / reader.rate
    if reader.frames < FEWEST:
        raise DataError("D001", f"{where} has {counted(reader.frames, 'samples')}: there is nothing to hear")
    if not 0 <= start < whole or (end is not None and not start < end <= whole + SLACK):
        until = "its end" if end is None else f"{end:g}"
        raise DataError("D001", f"{where} has {whole:.3f} seconds: none from {start:g} to {until}")
    first = round(start * reader.rate)
    last = reader.frames if end is None else min(reader.frames, round(end * reader.rate))
    if last - first < FEWEST:
        raise DataError(
            "D001", f"{where} has {counted(last - first, 'samples')} from {start:g} s: there is nothing to hear"
        )
    return first, last - first


def _check_samples(sound: Sound, where: str) -> None:
    good = np.abs(sound.samples) <= LOUDEST  # false for NaN
    if not good.all():
        first = int(np.argmin(good))
        what = f"{where}: sample {first:,} is {sound.samples[first]}"
        raise DataError("D001", f"{what}; samples are numbers from -1 to 1", "the file was damaged or badly converted")


@contextmanager
def _opened(source: Any, where: str) -> Iterator[_Reader]:
    if isinstance(source, str | Path | bytes):
        with Path(source).open("rb") if isinstance(source, str | Path) else io.BytesIO(source) as file:
            yield from _file_reader(file, where)
    else:
        yield _ArrayReader(source, where)


def _file_reader(file: BinaryIO, where: str) -> Iterator[_Reader]:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(12)
    file.seek(0)
    if head[:4] == b"RIFF":
        try:
            yield _WavReader(file, read_header(file, size))
            return
        except OtherEncodingError:
            file.seek(0)
    if not size:
        raise DataError("D001", f"{where}: the file is empty")
    if not head.startswith(MAGIC) and not (head[0] == 0xFF and head[1:2] >= b"\xe0"):
        raise DataError("D001", f"{where}: this is no sound that headway knows", "it reads wav, flac, ogg and mp3")
    yield from _soundfile_reader(file, where)


def _soundfile_reader(file: BinaryIO, where: str) -> Iterator[_Reader]:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: its library is missing
        message = f"{where} is no plain WAV file: reading it needs the package soundfile"
        raise NotFoundError("F003", message, "pip install 'headway[audio]'") from None
    try:
        with soundfile.SoundFile(file) as opened:
            yield _SoundFileReader(opened)
    except soundfile.LibsndfileError as error:
        said = error.error_string
        why = "it is cut off or damaged" if "does not exist" in said else said[:100]  # what it says of a headless MP3
        raise DataError("D001", f"{where} cannot be decoded: {why}") from None


class _WavReader:
    def __init__(self, file: BinaryIO, wav: Wav) -> None:
        self.file, self.wav = file, wav
        self.rate, self.channels, self.frames = wav.rate, wav.channels, wav.frames

    def read(self, first: int, count: int) -> NDArray[np.float32]:
        return self.wav.read(self.file, first, count)


class _SoundFileReader:
    def __init__(self, opened: Any) -> None:
        self.opened = opened
        self.rate, self.channels, self.frames = opened.samplerate, opened.channels, opened.frames

    def read(self, first: int, count: int) -> NDArray[np.float32]:
        if self.opened.tell() != first:
            self.opened.seek(first)
        found: NDArray[np.float32] = self.opened.read(count, dtype="float32", always_2d=True)
        return found


class _ArrayReader:
    """Samples in memory: floats from -1 to 1, or whole numbers of 8, 16 or 32 bits."""

    def __init__(self, source: Any, where: str) -> None:
        pair = isinstance(source, tuple | list) and len(source) == 2 and np.ndim(source[0]) > 0
        array, rate = (source[0], source[1]) if pair else (source, RATE)
        array = np.asarray(array)
        if array.ndim == 2:
            array = array if array.shape[0] >= array.shape[1] else array.T
        if array.ndim not in (1, 2) or array.dtype.kind not in "iuf" or not isinstance(rate, int | np.integer):
            what = f"{where} is an array of {array.dtype} with the shape {array.shape}"
            raise DataError("D001", f"{what}; a sound is samples, or samples × channels", "give (samples, rate)")
        self.array = array if array.ndim == 2 else array[:, None]
        self.rate, self.channels, self.frames = int(rate), self.array.shape[1], len(array)

    def read(self, first: int, count: int) -> NDArray[np.float32]:
        part = self.array[first : first + count]
        if part.dtype.kind == "f":
            with np.errstate(over="ignore"):  # `_check_samples` refuses what is infinite
                return part.astype(np.float32)
        half = 1 << (8 * part.dtype.itemsize - 1)
        return ((part.astype(np.float64) - (half if part.dtype.kind == "u" else 0)) / half).astype(np.float32)
