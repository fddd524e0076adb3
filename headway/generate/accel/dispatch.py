"""Which decoder generates: kernels for the models whose every part they know, else the model itself.

`abilities` lists what the kernels know. On NVIDIA GPUs they are Triton's, on CPUs Numba's. Every kernel path is tested
against `Transformer.step`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headway.generate.accel.abilities import CPU, CUDA, CUDA_BEAMS, can, is_int8
from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cuda.decoder import CudaDecoder
from headway.generate.protocol import Decoder, device_of
from headway.kernels.quantized import Int8Linear
from headway.model.model import Transformer
from headway.progress import bar

MIN_WEIGHTS = 8_000_000
"""Models with fewer weights fit into a CPU's caches, and compiling kernels is not worth the wait."""
MAX_ROWS = 32
"""Batch size up to which a CPU's kernels are faster than torch's float32 products. With int8 weights they always are,
and a sequence is then the same to the bit in any batch."""
MAX_BEAMS = 16
"""Rows of a beam search up to which the kernels are 1.3 times as fast (`benchmarks/kernel_paths.py`)."""


def accelerates(model: object, rows: int) -> TypeGuard[Transformer]:
    """Whether there are kernels that decode a batch of `rows` sequences with this model."""
    if not isinstance(model, Transformer) or model.config.encoder is not None:
        return False
    first = next(model.parameters())
    if first.is_cuda and not torch.version.hip:
        half = first.dtype in (torch.bfloat16, torch.float16)
        return half and can(model, CUDA, nn.Linear) and find_spec("triton") is not None
    return (rows <= MAX_ROWS or is_int8(model)) and _on_cpu(model)


def beam_decoder(model: Decoder[Any], inputs: int, width: int) -> Decoder[Any]:
    """The decoder for a beam search with `width` beams per input: the model, or on a CPU kernels for few beams."""
    if not isinstance(model, Transformer) or model.config.encoder is None:
        return model
    if inputs * width > MAX_BEAMS or not _on_cpu(model):
        return model
    from headway.generate.accel.cpu.beam import CpuBeamDecoder

    return CpuBeamDecoder(model, width)


def accelerates_beams(model: object) -> TypeGuard[Transformer]:
    """Whether a GPU has kernels for a beam search with this encoder–decoder."""
    if not isinstance(model, Transformer) or model.config.encoder is None:
        return False
    on_gpu = next(model.parameters()).is_cuda and not torch.version.hip
    return on_gpu and can(model, CUDA_BEAMS, nn.Linear) and find_spec("triton") is not None


def _on_cpu(model: Transformer) -> bool:
    first = next(model.parameters())
    if first.device.type != "cpu" or first.dtype != torch.float32 or not can(model, CPU, nn.Linear, Int8Linear):
        return False
    return sum(t.numel() for t in model.state_dict().values()) >= MIN_WEIGHTS and _threads()


@cache
def _threads() -> bool:
    """Whether Numba is installed with a thread pool that several callers may use at once."""
    if (numba := find_spec("numba")) is None or numba.origin is None:
        return False
    for pool in ("tbbpool", "omppool"):  # importing them would import Numba, which the first token does not need
        for library in Path(numba.origin).parent.glob(f"np/ufunc/{pool}*"):
            with suppress(OSError):  # it needs a library that is not there
                ctypes.CDLL(str(library))
                return True
    return False


def make_decoder(model: Transformer, keys: Sequence[Tensor], values: Sequence[Tensor]) -> FastDecoder:
    """A decoder over this KV cache, for the device that the cache is on."""
    if keys[0].is_cuda:
        return CudaDecoder(model, keys, values)
    from headway.generate.accel.cpu.decoder import CpuDecoder

    return CpuDecoder(model, keys, values)


def compile_kernels(model: object, rows: int, *, now: bool = True) -> None:
    """Compile the CPU kernels for up to `rows` sequences, or load what an earlier process has compiled.

    Without `now`, loading is left to the first step: the first token of a text comes from the prefill, without kernels.
    """
    if not accelerates(model, rows) or device_of(model).type != "cpu":
        return
    from headway.generate.accel.cpu.decoder import CpuDecoder, compiled

    if compiled() and not now:
        return
    with bar("compiling kernels for this CPU, once"):
        cache = model.start(batch=rows, capacity=4)
        decoder = CpuDecoder(model, cache.keys, cache.values)
        for count in {1, rows}:
            decoder.step(range(count))


_CACHED: WeakKeyDictionary[Transformer, FastDecoder] = WeakKeyDictionary()
"""The decoder that a model was last used with. Making a decoder takes as long as generating a sentence."""


def acquire(model: Transformer, rows: int, columns: int) -> FastDecoder:
    """A decoder for `rows` sequences of up to `columns` tokens. It is the caller's until `release`."""
    cached = _CACHED.pop(model, None)
    if cached is not None and not cached.knows(model, rows):
        cached = None
    if cached is not None:
        cached.renew(model)
        if cached.suits(columns):
            return cached
    cache = model.start(batch=rows, capacity=(columns // 256 + 1) * 256)
    made = make_decoder(model, cache.keys, cache.values)
    if cached is not None and cached.columns < made.columns:
        made.learn(cached)
    return made


def release(decoder: FastDecoder) -> None:
    """Keep a decoder for the model's next batch."""
    if (model := decoder.owner()) is not None:
        _CACHED[model] = decoder


def forget(model: Transformer) -> None:
    """Drop the model's decoder and its KV cache, after changes of weights that `Snapshot` cannot see."""
    _CACHED.pop(model, None)
