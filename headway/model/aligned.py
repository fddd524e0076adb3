"""Tensors that begin where vector instructions may read.

A kernel that loads a whole vector at an address that is not a multiple of the vector's size may end the process:
torch's product of int8 weights does (SIGSEGV on CPUs with AVX-512). Tensors mapped from a safetensors file begin at any
multiple of 8 bytes, and views of a tensor anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

BYTES = 64
"""The widest vector of a CPU (AVX-512), and what torch's own allocator keeps to."""


def is_aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % BYTES == 0


def aligned(tensor: Tensor) -> Tensor:
    """The tensor itself if it is contiguous and aligned, otherwise a copy that is."""
    whole = tensor.contiguous()
    return whole if is_aligned(whole) else whole.clone()
