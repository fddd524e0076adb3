"""Images and labels in arrays: idx files, as MNIST has them, and npz files of NumPy. No pickle is opened."""

from __future__ import annotations

import gzip
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError
from headway.jsonfile import show, unreadable

IDX = re.compile(r"(?P<start>.*)images[-.]idx3-ubyte(?P<packed>\.gz)?", re.IGNORECASE)
"""The name of an idx file of images; its labels are beside it, with `labels` and `idx1` in the name."""
IDX_MAGIC = {3: b"\x00\x00\x08\x03", 1: b"\x00\x00\x08\x01"}
"""Dimensions → the first bytes of an idx file of bytes."""
IMAGE_NAMES, LABEL_NAMES = ("x", "images", "image", "data"), ("y", "labels", "label", "targets")
"""Names of arrays in an npz file, also with the part before or after them: x_train, train_images."""
LIMIT = 1 << 34
"""Bytes of an array; more stop a hostile header before it allocates anything."""

Arrays = tuple[NDArray[Any], NDArray[Any] | None]
"""Images (N, height, width[, channels]) and their labels (N,)."""


def idx_images(folder: Path) -> list[Path]:
    """The idx files of images in a folder."""
    return sorted(path for path in folder.iterdir() if IDX.fullmatch(path.name))


def read_idx(path: Path) -> Arrays:
    """Images of an idx file, with the labels in the file beside it."""
    images = _read_idx(path, 3)
    name = re.sub("images", "labels", path.name, flags=re.IGNORECASE)
    other = path.with_name(re.sub("idx3", "idx1", name, flags=re.IGNORECASE))
    for labels in (other, other.with_name(f"{other.name}.gz"), other.with_name(other.name.removesuffix(".gz"))):
        if labels.is_file():
            return _together(path, images, _read_idx(labels, 1))
    return images, None


def _read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            head = file.read(4 + 4 * dimensions)
            if head[:4] != IDX_MAGIC[dimensions] or len(head) < 4 + 4 * dimensions:
                raise DataError("D003", f"{show(path)} is no idx file of bytes with {dimensions} dimensions")
            shape = tuple(int(n) for n in np.frombuffer(head[4:], dtype=">u4"))
            size = int(np.prod(shape, dtype=object))
            raw = file.read(min(size, LIMIT) + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError("D003", f"{show(path)} is damaged: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from error
    if len(raw) != size:
        what = "fewer" if len(raw) < size else "more"
        raise DataError("D003", f"{show(path)} has {what} bytes than its header says ({size:,}): it is damaged")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def read_npz(path: Path, part: str, names: tuple[str, ...]) -> Arrays:
    """Images and labels of an npz file; `names` are those of the part (train …) where the file holds several."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            images = _named(file.files, IMAGE_NAMES, names)
            if images is None:
                have = ", ".join(file.files[:8])
                hint = f"name the arrays {IMAGE_NAMES[0]} and {LABEL_NAMES[0]}, or {IMAGE_NAMES[0]}_{part} …"
                raise DataError("D004", f"{show(path)} has no array of images for {part}: it has {have}", hint)
            labels = _named(file.files, LABEL_NAMES, names)
            found = file[images], None if labels is None else file[labels]
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise DataError("D003", f"{show(path)} is damaged, or holds Python objects: {error}"[:200]) from None
    except OSError as error:
        raise unreadable(path, error) from error
    return _together(path, *found)


def npz_parts(path: Path, parts: dict[str, tuple[str, ...]]) -> list[str]:
    """The parts of a dataset that an npz file holds apart: train, valid, test."""
    try:
        with zipfile.ZipFile(path) as file:
            arrays = [name.removesuffix(".npy") for name in file.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []
    return [part for part, names in parts.items() if _apart(arrays, IMAGE_NAMES, names)]


def _named(arrays: list[str], kinds: tuple[str, ...], parts: tuple[str, ...]) -> str | None:
    """The array of a part: x_train or train_x if the file has parts, else x."""
    plain = next((name for name in arrays if name.lower() in kinds), None)
    return _apart(arrays, kinds, parts) or plain


def _apart(arrays: list[str], kinds: tuple[str, ...], parts: tuple[str, ...]) -> str | None:
    wanted = {f"{a}_{b}" for kind in kinds for part in parts for a, b in ((kind, part), (part, kind))}
    return next((name for name in arrays if name.lower() in wanted), None)


def _together(path: Path, images: NDArray[Any], labels: NDArray[Any] | None) -> Arrays:
    if images.ndim not in (3, 4) or not len(images):
        raise DataError("D003", f"{show(path)}: images of shape {images.shape}; expected count × height × width (× 3)")
    if labels is not None:
        labels = labels.reshape(len(labels), -1)[:, 0] if labels.ndim > 1 and labels.size == len(labels) else labels
        if labels.shape != (len(images),):
            raise DataError("D004", f"{show(path)}: {len(images):,} images and labels of shape {labels.shape}")
    return images, labels
