"""Images decoded as viewers show them: by Pillow, the right way up, first frame, on white, 8 bits, grey or RGB."""

from __future__ import annotations

import io
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError, NotFoundError
from headway.jsonfile import show

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
"""(height, width) or (height, width, channels)"""
MAX_PIXELS = 89_478_485
"""Pixels of an image, before it is decoded: a small file can claim a huge image. Pillow warns from the same number."""
WHITE = (255, 255, 255, 255)
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")
"""Pillow's modes with more than 8 bits of grey; its own conversion would cut them off at 255."""


@cache
def pillow() -> Any:
    """The module PIL.Image; an error that says how to install it."""
    try:
        from PIL import Image
    except ImportError:
        message = "reading image files needs the package pillow"
        raise NotFoundError("F003", message, "pip install 'headway[vision]'") from None
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # `open_image` refuses such images
    return Image


def open_image(source: Any, name: str = "") -> Image:
    """An image in mode L or RGB, from a path, the bytes of a file, an array, or an image of Pillow.

    A `DataError` says why it cannot be read; `name` is what it calls an image without a path.
    """
    image, where = pillow(), show(source) if isinstance(source, str | Path) else name or "the image"
    if isinstance(source, np.ndarray):
        made: Image = image.fromarray(as_pixels(source, where))
        return made
    try:
        opened = source if isinstance(source, image.Image) else image.open(_file(source))
        _check_size(opened, where)
        return _upright(opened)
    except (image.DecompressionBombError, image.DecompressionBombWarning):  # the latter if warnings are errors
        raise DataError("D001", f"{where} claims more than {MAX_PIXELS:,} pixels: it is not decoded") from None
    except image.UnidentifiedImageError:
        empty = (isinstance(source, bytes) and not source) or (isinstance(source, str | Path) and _size(source) == 0)
        why = "the file is empty" if empty else "this is no image that Pillow knows"
        raise DataError("D001", f"{where}: {why}") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError) as error:
        if isinstance(error, FileNotFoundError):
            raise NotFoundError("F001", f"no such file: {where}") from None
        reason = (str(error) or type(error).__name__).splitlines()[0][:100]
        raise DataError("D001", f"{where} cannot be decoded: {reason}") from None


def image_size(source: Any) -> tuple[int, int]:
    """Width and height, by the header alone: nothing is decoded."""
    if isinstance(source, np.ndarray):
        return source.shape[1], source.shape[0]
    image = pillow()
    try:
        with image.open(_file(source)) as opened:
            return int(opened.width), int(opened.height)
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError, image.DecompressionBombWarning) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:100]
        reason = "this is no image that Pillow knows" if isinstance(error, image.UnidentifiedImageError) else reason
        raise DataError("D001", f"the image cannot be opened: {reason}") from None


def as_pixels(array: NDArray[Any], name: str = "the array") -> Pixels:
    """An array as 8-bit pixels: bytes 0 … 255, or floats 0 … 1; channels last or first, one, three or four of them."""
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or 0 in array.shape:
        raise DataError("D001", f"{name} has the shape {array.shape}; an image is height × width (× 1, 3 or 4)")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low >= 0 and high <= 1):  # also false for NaN
            raise DataError("D001", f"{name} has values {low:g} … {high:g}; floats should be 0 … 1, bytes 0 … 255")
        array = (array * 255).round()
    elif array.dtype == np.bool_:
        array = array * np.uint8(255)
    elif array.dtype != np.uint8 and (array.min() < 0 or array.max() > 255):
        raise DataError("D001", f"{name} has values {array.min()} … {array.max()}; whole numbers should be 0 … 255")
    pixels = np.ascontiguousarray(array, dtype=np.uint8)
    return pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels


def _file(source: Any) -> Any:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if isinstance(source, str | Path):
        return io.BytesIO(Path(source).read_bytes())  # Pillow leaves a file open that it cannot decode
    raise TypeError(f"an image is a path, bytes, an array or an image of Pillow, not {type(source).__name__}")


def _size(path: str | Path) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return -1


def _check_size(image: Image, where: str) -> None:
    """Only the header has been read so far."""
    if image.width * image.height > MAX_PIXELS:
        size = f"{image.width:,} × {image.height:,} pixels"
        raise DataError("D001", f"{where} has {size}; headway decodes up to {MAX_PIXELS:,}")


def _upright(image: Image) -> Image:
    """Decode, turn by the EXIF tag, put transparency on white, and reduce to 8 bits of grey or RGB."""
    from PIL import ImageOps

    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode in DEEP:
        grey = np.asarray(image).astype(np.int64)
        high = int(grey.max(initial=0))
        if high > 255 or image.mode != "I":
            grey = grey >> max(8, high.bit_length() - 8)
        return pillow().fromarray(grey.clip(0, 255).astype(np.uint8))  # type: ignore[no-any-return]
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers without a known range")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = pillow().alpha_composite(pillow().new("RGBA", image.size, WHITE), image)
        return image.convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")
