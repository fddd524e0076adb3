"""PNG files of arrays, and grids of images, written without any library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from headway.data.images.decode import Pixels

GREY, RGB = 0, 2
"""Colour types of PNG."""


def png(pixels: Pixels) -> bytes:
    """An image (height, width) or (height, width, 3) as the bytes of a PNG file."""
    height, width = pixels.shape[:2]
    colour = GREY if pixels.ndim == 2 else RGB
    rows = np.zeros((height, 1 + width * (1 if colour == GREY else 3)), dtype=np.uint8)  # 0: rows are not filtered
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def grid(images: Sequence[Pixels], columns: int, gap: int = 2) -> Pixels:
    """Images (channels, height, width) of one size as one picture (height, width, 3), with white lines between."""
    _, height, width = images[0].shape
    rows = -(-len(images) // columns)
    sheet = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), 255, dtype=np.uint8)
    for number, image in enumerate(images):
        top, left = number // columns * (height + gap), number % columns * (width + gap)
        sheet[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return sheet


def enlarged(image: Pixels, least: int) -> Pixels:
    """A picture (height, width, …) with every pixel repeated, so that it is at least so many pixels high."""
    times = max(1, -(-least // image.shape[0]))
    return image.repeat(times, 0).repeat(times, 1)
