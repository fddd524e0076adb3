"""WAV files, read here so that no package is needed for them: PCM of 8 to 32 bits and floats, any channels."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
"""Numbers of encodings; those of an extensible header stand at the beginning of its identifier."""
WIDTHS = {PCM: (1, 2, 3, 4), FLOAT: (4, 8)}
"""Encoding → bytes of a sample."""
UNKNOWN = 0x7FFFF000
"""From here on, a size of samples that are not there is that of a file which was written into a pipe: programs that
cannot go back to the header leave the largest size they know, and the samples go on until the file ends."""
CHUNKS = 1000
"""The most chunks before the samples; a hostile file may have any number of them."""


class WavError(ValueError):
    """What is wrong with a WAV file."""


class OtherEncodingError(WavError):
    """An encoding that this reader does not know."""


@dataclass(frozen=True)
class Wav:
    """The header of a WAV file."""

    rate: int
    channels: int
    encoding: int
    width: int
    """Bytes of a sample."""
    begin: int
    """Where the samples begin in the file, in bytes."""
    frames: int
    """Samples of each channel."""

    def read(self, file: BinaryIO, first: int, count: int) -> NDArray[np.float32]:
        """(count, channels) from -1 to 1."""
        file.seek(self.begin + first * self.channels * self.width)
        raw = file.read(count * self.channels * self.width)
        if len(raw) < count * self.channels * self.width:
            raise WavError("the file ends within its samples")
        return _floats(raw, self.encoding, self.width).reshape(-1, self.channels)


def read_header(file: BinaryIO, size: int) -> Wav:
    """The header of a WAV file of `size` bytes."""
    if file.read(12)[8:] != b"WAVE":
        raise WavError("the header of a WAV file is not whole")
    form: tuple[int, int, int, int] | None = None
    for _ in range(CHUNKS):
        head = file.read(8)
        if len(head) < 8:
            raise WavError("the file ends before its samples")
        name, length = head[:4], int.from_bytes(head[4:], "little")
        if name == b"fmt ":
            form = _format(file.read(min(length, 40)))
            file.seek(length - min(length, 40) + length % 2, 1)
        elif name == b"data":
            return _header(form, file.tell(), length, size)
        else:
            file.seek(length + length % 2, 1)
    raise WavError(f"more than {CHUNKS:,} chunks before its samples")


def _format(raw: bytes) -> tuple[int, int, int, int]:
    """Encoding, channels, rate and bytes of a sample."""
    if len(raw) < 16:
        raise WavError("its format chunk is too short")
    encoding, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", raw[:16])
    if encoding == EXTENSIBLE:
        if len(raw) < 26:
            raise WavError("its extensible header is too short")
        encoding = int.from_bytes(raw[24:26], "little")
    if encoding not in WIDTHS:
        raise OtherEncodingError(f"encoding {encoding}")
    width = (bits + 7) // 8
    if width not in WIDTHS[encoding]:
        raise WavError(f"samples of {bits} bits")
    if not channels or frame != channels * width:
        raise WavError(f"its header contradicts itself: {channels} channels of {width} bytes in frames of {frame}")
    return encoding, channels, rate, width


def _header(form: tuple[int, int, int, int] | None, begin: int, length: int, size: int) -> Wav:
    if form is None:
        raise WavError("its samples come before its format")
    encoding, channels, rate, width = form
    there = size - begin
    if length > there and length >= UNKNOWN:
        length = there
    if length > there:
        raise WavError(f"its header says {length:,} bytes of samples, and {there:,} are there: it is cut off")
    return Wav(rate, channels, encoding, width, begin, length // (channels * width))


def _floats(raw: bytes, encoding: int, width: int) -> NDArray[np.float32]:
    if encoding == FLOAT:
        with np.errstate(over="ignore"):  # the caller refuses what is infinite
            return np.frombuffer(raw, dtype=f"<f{width}").astype(np.float32)
    if width == 1:
        return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        raw, width = wide.tobytes(), 4
    found: NDArray[np.float32] = np.frombuffer(raw, dtype=f"<i{width}").astype(np.float32)
    found /= 1 << (8 * width - 1)
    return found


def wav_bytes(samples: NDArray[np.float32], rate: int) -> bytes:
    """Mono samples from -1 to 1 as a WAV file of 16 bits."""
    raw = (samples.clip(-1, 1) * 32767).round().astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, PCM, 1, rate, 2 * rate, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(raw)) + raw
    return struct.pack("<4sI", b"RIFF", len(body)) + body
