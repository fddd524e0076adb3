"""Decoding: every WAV encoding, other formats, segments, and files that are broken or hostile."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.data.sounds import decode
from headway.data.sounds.decode import open_sound, read_seconds
from headway.data.sounds.wav import wav_bytes
from headway.errors import DataError, NotFoundError

RATE = 8000
TONE = (0.5 * np.sin(np.arange(1600) * 0.3)).astype(np.float32)


def wav(
    data: bytes,
    encoding: int = 1,
    channels: int = 1,
    rate: int = RATE,
    bits: int = 16,
    size: int | None = None,
    extensible: bool = False,
    before: bytes = b"",
) -> bytes:
    width = bits // 8
    tag = 0xFFFE if extensible else encoding
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * channels * width, channels * width, bits)
    if extensible:
        form += struct.pack("<HHIH", 22, bits, 0, encoding)
        form += b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + before
    chunks += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def pcm(samples: Any, bits: int) -> bytes:
    whole = np.round(samples.astype(np.float64) * (2 ** (bits - 1) - 1)).astype(np.int64)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    return whole.astype("<i8").view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("encoding", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
def test_every_encoding(encoding: int, bits: int, extensible: bool) -> None:
    data = pcm(TONE, bits) if encoding == 1 else TONE.astype(f"<f{bits // 8}").tobytes()
    sound = open_sound(wav(data, encoding, bits=bits, extensible=extensible))
    assert sound.rate == RATE and sound.samples.dtype == np.float32
    np.testing.assert_allclose(sound.samples, TONE, atol=2 ** -(min(bits, 24) - 2))


@pytest.mark.parametrize("bits", [16, 24])
@pytest.mark.parametrize("channels", [2, 8])
def test_channels_are_averaged(channels: int, bits: int) -> None:
    several = np.stack([TONE * each / channels for each in range(1, channels + 1)], 1)
    sound = open_sound(wav(pcm(several, bits), channels=channels, bits=bits))
    assert sound.channels == channels
    np.testing.assert_allclose(sound.samples, several.mean(1), atol=1e-4)


def test_equals_soundfile() -> None:
    import soundfile

    noise = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        file = io.BytesIO()
        soundfile.write(file, noise, 44100, subtype=subtype, format="WAVEX")
        file.seek(0)
        wanted, rate = soundfile.read(file, dtype="float32")
        found = open_sound(file.getvalue())
        assert found.rate == rate
        np.testing.assert_allclose(found.samples, wanted.mean(1), atol=1e-6)


@pytest.mark.parametrize("kind", ["flac", "ogg", "mp3"])
def test_other_formats(kind: str, tmp_path: Path) -> None:
    import soundfile

    path = tmp_path / f"tone.{kind}"
    soundfile.write(path, np.tile(TONE, 5), RATE, format=kind.upper())
    whole = open_sound(path)
    assert whole.rate == RATE and abs(len(whole.samples) - 8000) < 2400
    assert np.abs(whole.samples).max() > 0.4
    part = read_seconds(str(path), 0.25, 0.5)
    np.testing.assert_allclose(part.samples, whole.samples[2000:4000], atol=1e-2)


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(NotFoundError, match=r"soundfile") as error:
        open_sound(b"fLaC" + b"\0" * 100)
    assert "headway[audio]" in str(error.value)


def test_chunks_before_the_samples_are_skipped() -> None:
    before = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    np.testing.assert_allclose(open_sound(wav(pcm(TONE, 16), before=before)).samples, TONE, atol=1e-4)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_piped_file_goes_on_to_its_end(size: int) -> None:
    assert len(open_sound(wav(pcm(TONE, 16), size=size)).samples) == len(TONE)


def test_segments(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    path.write_bytes(wav_bytes(TONE, RATE))
    whole = open_sound(path)
    np.testing.assert_array_equal(read_seconds(path, 0.05, 0.1).samples, whole.samples[400:800])
    np.testing.assert_array_equal(read_seconds(path, 0.05, None).samples, whole.samples[400:])
    assert len(read_seconds(path, 0.0, 0.25).samples) == 1600  # the end was rounded
    for start, end in ((0.3, None), (-1, None), (0.1, 0.05), (0.1, 0.4), (float("nan"), None), (0.1, 0.10001)):
        with pytest.raises(DataError, match=r"tone\.wav"):
            read_seconds(path, start, end)


def test_blocks_equal_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data = wav(pcm(np.stack([TONE, -TONE / 2], 1), 16), channels=2)
    whole = open_sound(data).samples
    monkeypatch.setattr(decode, "BLOCK", 100)
    np.testing.assert_array_equal(open_sound(data).samples, whole)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"no sound at all", "no sound that headway knows"),
        (wav(b""), "0 samples"),
        (wav(pcm(TONE[:1], 16)), "1 sample:"),
        (wav(np.array([0, np.nan, 0], "<f4").tobytes(), 3, bits=32), "sample 1 is nan"),
        (wav(np.array([0, 0, -np.inf], "<f4").tobytes(), 3, bits=32), "sample 2 is -inf"),
        (wav(np.array([0, 1e300], "<f8").tobytes(), 3, bits=64), "sample 1"),
        (wav(pcm(TONE, 16), size=10**6), "cut off"),
        (wav(pcm(TONE, 16))[:30], "format|ends"),
        (wav(pcm(TONE, 16))[:40], "ends before"),
        (wav(pcm(TONE, 16), bits=12), "12 bits|contradicts"),
        (wav(pcm(TONE, 16), channels=0), "contradicts"),
        (wav(pcm(TONE, 16), channels=1000), "1,000 channels"),
        (wav(pcm(TONE, 16), rate=0), "0 samples per second"),
        (wav(pcm(TONE, 16), rate=2**30), "samples per second"),
        (b"RIFF\0\0\0\0WAVE" + 2000 * (b"junk" + struct.pack("<I", 0)), "chunks"),
        (b"fLaC" + b"\0" * 100, "cannot be decoded"),
        (b"\xff\xfb\x90\x00" + b"\0" * 200, "cut off or damaged"),
    ],
)
def test_broken_sounds(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.wav"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=says) as error:
        open_sound(path)
    assert "broken.wav" in str(error.value)


def test_hours_in_a_small_file_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, np.zeros(50_000, np.int16), RATE, format="FLAC")
    monkeypatch.setattr(decode, "MOST_IN_BYTES", 40_000)
    with pytest.raises(DataError, match="minutes"):
        open_sound(file.getvalue())
    assert len(read_seconds(file.getvalue(), 1.0, 3.0).samples) == 16_000


def test_arrays() -> None:
    np.testing.assert_array_equal(open_sound(TONE).samples, TONE)
    assert open_sound(TONE).rate == 16_000 and open_sound((TONE, 8000)).rate == 8000
    whole = (TONE * 32767).astype(np.int16)
    np.testing.assert_allclose(open_sound((whole, 8000)).samples, TONE, atol=1e-4)
    both = open_sound((np.stack([TONE, 0 * TONE]), 8000))  # channels first
    np.testing.assert_allclose(both.samples, TONE / 2, atol=1e-6)
    for wrong in (np.zeros((2, 2, 2)), np.array(["a"]), 3.0, np.zeros(0), (TONE, "8000")):
        with pytest.raises(DataError):
            open_sound(wrong)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.wav"):
        open_sound(tmp_path / "none.wav")
