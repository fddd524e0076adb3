"""Images decoded as viewers show them, and named errors for those that cannot be."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from headway.data.images.decode import MAX_PIXELS, as_pixels, open_image  # noqa: E402
from headway.data.images.png import enlarged, grid, png  # noqa: E402
from headway.errors import DataError, NotFoundError  # noqa: E402

RAMP = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
COLOUR = np.stack([RAMP, 255 - RAMP, RAMP // 2], -1)


def file_of(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    with io.BytesIO() as file:
        image.save(file, kind, **options)
        return file.getvalue()


def pixels(source: Any) -> Any:
    return np.asarray(open_image(source, "it"))


def test_our_own_png_files() -> None:
    for array in (RAMP, COLOUR):
        assert np.array_equal(pixels(png(array)), array)
    sheet = grid([COLOUR.transpose(2, 0, 1)] * 3, 2, gap=1)
    assert sheet.shape == (13, 17, 3) and np.array_equal(sheet[7:, :8], COLOUR) and (sheet[7:, 9:] == 255).all()
    assert enlarged(RAMP, 12).shape == (12, 16)


def test_sixteen_bits_are_scaled_and_not_cut_off() -> None:
    deep = (RAMP.astype(np.uint16) << 8) + 7
    assert np.array_equal(pixels(file_of(Image.fromarray(deep))), RAMP)


def test_a_palette_and_black_and_white() -> None:
    assert np.array_equal(pixels(file_of(Image.fromarray(RAMP).convert("P"), "GIF")), np.stack([RAMP] * 3, -1))
    mono = Image.fromarray((RAMP > 100).astype(np.uint8) * 255).convert("1")
    assert np.array_equal(pixels(file_of(mono)), (RAMP > 100) * np.uint8(255))


def test_transparency_is_put_on_white() -> None:
    alpha = np.dstack([COLOUR, np.where(RAMP > 100, 255, 0).astype(np.uint8)])
    found = pixels(file_of(Image.fromarray(alpha)))
    assert (found[RAMP <= 100] == 255).all() and np.array_equal(found[RAMP > 100], COLOUR[RAMP > 100])


def test_print_colours_become_rgb() -> None:
    found = pixels(file_of(Image.fromarray(COLOUR).convert("CMYK"), "JPEG", quality=100, subsampling=0))
    assert found.shape == COLOUR.shape and np.abs(found.astype(int) - COLOUR).mean() < 12


def test_of_an_animation_the_first_frame() -> None:
    frames = [Image.fromarray(np.full((6, 8), value, np.uint8)) for value in (10, 200)]
    raw = file_of(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (pixels(raw) == 10).all()


def test_a_rotation_in_the_exif_tag_is_applied() -> None:
    image = Image.fromarray(COLOUR)
    tag = Image.Exif()
    tag[0x0112] = 6  # shown turned by 90° clockwise
    assert np.array_equal(pixels(file_of(image, exif=tag)), np.rot90(COLOUR, -1))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "empty"),
        (b"no image at all", "no image"),
        (png(COLOUR)[:60], "decoded"),
        (file_of(Image.fromarray(np.tile(COLOUR, (20, 20, 1))), "JPEG")[:500], "(?i)truncated"),
        (file_of(Image.fromarray(RAMP.astype(np.float32)), "TIFF"), "floating"),
    ],
)
def test_broken_files_are_named(raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(raw)
    for source in (raw, path, str(path)):
        with pytest.raises(DataError, match=said) as caught:
            open_image(source, "it")
        assert ("it" if isinstance(source, bytes) else "a.png") in caught.value.message


def test_a_small_file_that_claims_a_huge_image_is_not_decoded() -> None:
    side = int(MAX_PIXELS**0.5) + 2
    for width, height in ((side, side), (4 * side, side)):  # Pillow warns of the first, refuses the second
        head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
        chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
        body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
        with pytest.raises(DataError, match="pixels"):
            open_image(b"\x89PNG\r\n\x1a\n" + body)


def test_a_missing_file() -> None:
    with pytest.raises(NotFoundError):
        open_image("nowhere.png")


def test_arrays_are_images() -> None:
    assert np.array_equal(pixels(COLOUR), COLOUR)
    assert np.array_equal(pixels(COLOUR.transpose(2, 0, 1)), COLOUR)
    assert np.array_equal(pixels(RAMP[..., None]), RAMP)
    assert np.array_equal(as_pixels(RAMP / 255), RAMP)
    assert np.array_equal(as_pixels(RAMP > 100), (RAMP > 100) * 255)
    for wrong in (RAMP / 100, np.full((4, 4), np.nan), np.full((4, 4), 300), np.zeros((2, 2, 2, 2)), np.zeros((0, 4))):
        with pytest.raises(DataError):
            as_pixels(wrong)
