"""Quantization formats of GGUF files, dequantized in place, bit for bit as the gguf package does it.

The package knows every format, imports a YAML parser, and makes a dozen arrays on the way. The formats that most files
have are computed here, three times as fast; the others go through the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from headway.errors import NotFoundError

Array = Any
"""A numpy array."""
CHUNK, PACKAGE_CHUNK = 1 << 20, 1 << 14
"""Items that are dequantized at a time, here and by the package: intermediate arrays stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class Format:
    """A quantization format: how many items and bytes a block has, and what computes the items."""

    name: str
    items: int
    size: int
    convert: Callable[[Array, Array], None]
    """Blocks as rows of bytes, and where their items go as rows of float32."""
    chunk: int = CHUNK

    def dequantize(self, raw: Array, out: Array) -> None:
        """Dequantize the bytes `raw` into `out`, both contiguous."""
        blocks, numbers = raw.reshape(-1, self.size), out.reshape(-1, self.items)
        step = max(1, self.chunk // self.items)
        for begin in range(0, len(blocks), step):
            self.convert(blocks[begin : begin + step], numbers[begin : begin + step])


@cache
def format_of(number: int) -> Format | None:
    """The format with this number in files; None if there is none."""
    if number in FORMATS:
        return FORMATS[number]
    if find_spec("gguf") is None:
        message = f"GGUF files with the quantization format {number} need the package gguf"
        raise NotFoundError("F003", message, "pip install 'headway[gguf]'")
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        return None

    def convert(blocks: Array, out: Array) -> None:
        from gguf import quants

        out[:] = quants.dequantize(blocks.reshape(1, -1), kind).reshape(out.shape)

    return Format(kind.name, *GGML_QUANT_SIZES[kind], convert, PACKAGE_CHUNK)


def _f32(blocks: Array, out: Array) -> None:
    out[:] = blocks.view(np.float32)


def _f16(blocks: Array, out: Array) -> None:
    out[:] = blocks.view(np.float16)


def _bf16(blocks: Array, out: Array) -> None:
    bits = out.view(np.uint32)
    bits[:] = blocks.view(np.uint16)
    bits <<= 16


def _scale(blocks: Array, begin: int) -> Array:
    """The float16 at a byte of each block, as a column of float32."""
    return blocks[:, begin : begin + 2].view(np.float16).astype(np.float32)


def _nibbles(packed: Array, width: int) -> Array:
    """The lower halves of each `width` bytes, then the upper halves."""
    packed = packed.reshape(len(packed), -1, width)
    found = np.empty((len(packed), packed.shape[1], 2, width), np.uint8)
    np.bitwise_and(packed, 15, out=found[:, :, 0])
    np.right_shift(packed, 4, out=found[:, :, 1])
    return found


def _q4_0(blocks: Array, out: Array) -> None:
    found = _nibbles(blocks[:, 2:], 16)
    found -= 8
    out[:] = found.view(np.int8).reshape(out.shape)
    out *= _scale(blocks, 0)


def _q4_1(blocks: Array, out: Array) -> None:
    out[:] = _nibbles(blocks[:, 4:], 16).reshape(out.shape)
    out *= _scale(blocks, 0)
    out += _scale(blocks, 2)


def _q8_0(blocks: Array, out: Array) -> None:
    out[:] = blocks[:, 2:].view(np.int8)
    out *= _scale(blocks, 0)


def _q4_k(blocks: Array, out: Array) -> None:
    _scale_and_shift(blocks, _nibbles(blocks[:, 16:], 32), out)


def _q5_k(blocks: Array, out: Array) -> None:
    found, fifth = _nibbles(blocks[:, 48:], 32), blocks[:, 16:48]
    groups = found.reshape(len(blocks), 8, 32)
    for bit in range(8):
        groups[:, bit] |= (fifth >> bit & 1) << 4
    _scale_and_shift(blocks, found, out)


def _scale_and_shift(blocks: Array, found: Array, out: Array) -> None:
    """The end of Q4_K and Q5_K: a scale and a minimum of six bits for each of eight groups."""
    packed = blocks[:, 4:16].reshape(-1, 3, 4)  # 4 scales, 4 minima, lower bits of 4 more; upper bits are in the first
    first, second, rest = packed[:, 0], packed[:, 1], packed[:, 2]
    scales = np.concatenate([first & 63, rest & 15 | first >> 2 & 48], axis=1)
    minima = np.concatenate([second & 63, rest >> 4 | second >> 2 & 48], axis=1)
    groups = out.reshape(-1, 8, 32)
    groups[:] = found.reshape(groups.shape)
    groups *= (_scale(blocks, 0) * scales.astype(np.float32))[:, :, None]
    groups -= (_scale(blocks, 2) * minima.astype(np.float32))[:, :, None]


def _q6_k(blocks: Array, out: Array) -> None:
    found, upper = _nibbles(blocks[:, :128], 64), blocks[:, 128:192].reshape(-1, 2, 32)
    quarters = found.reshape(len(blocks), 2, 4, 32)
    for i in range(4):
        quarters[:, :, i] |= (upper >> 2 * i & 3) << 4
    found -= 32
    groups = out.reshape(-1, 16, 16)
    groups[:] = found.view(np.int8).reshape(groups.shape)
    groups *= (_scale(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32))[:, :, None]


FORMATS = {
    0: Format("F32", 1, 4, _f32),
    1: Format("F16", 1, 2, _f16),
    2: Format("Q4_0", 32, 18, _q4_0),
    3: Format("Q4_1", 32, 20, _q4_1),
    8: Format("Q8_0", 32, 34, _q8_0),
    12: Format("Q4_K", 256, 144, _q4_k),
    13: Format("Q5_K", 256, 176, _q5_k),
    14: Format("Q6_K", 256, 210, _q6_k),
    30: Format("BF16", 1, 2, _bf16),
}
"""Number in the file → format."""
