"""Decoding at the speed of memory, where there are kernels for it: for decoders whose every part the kernels know, as
`abilities` lists it. On NVIDIA GPUs they are Triton's, on CPUs Numba's. Everything else decodes through `Model.step`,
which both are tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headway.generate.accel.abilities import COLUMNS, CPU, CUDA, CUDA_BEAMS, can, is_int8, is_multi_head
from headway.generate.accel.base import FastDecoder
from headway.generate.accel.cpu.columns import ColumnBeamDecoder
from headway.generate.accel.cpu.packed import PackedHeadDecoder, packs
from headway.generate.accel.cuda.decoder import CudaDecoder
from headway.generate.protocol import Decoder, device_of
from headway.model.model import Model, Transformer
from headway.model.quantized import Int8Linear

MIN_WEIGHTS = 8_000_000
"""Weights below which a CPU has them at hand anyway, and compiling kernels is not worth the wait."""
MAX_ROWS = 32
"""Texts up to which a CPU's kernels are faster than torch's products of floats. With whole numbers they always are,
and what is computed of a text is then the same to the bit however many there are."""
MAX_BEAMS = 16
"""Beams up to which they are. Above, torch multiplies floats in columns; above ROWS whole numbers too, made floats."""


def accelerates(model: object, rows: int) -> TypeGuard[Transformer]:
    """Whether so many texts of a decoder can be written by kernels."""
    if not isinstance(model, Transformer) or model.config.encoder is not None:
        return False
    first = next(model.parameters())
    if first.is_cuda and not torch.version.hip:
        half = first.dtype in (torch.bfloat16, torch.float16)
        return half and can(model, CUDA, nn.Linear) and find_spec("triton") is not None
    return (rows <= MAX_ROWS or is_int8(model)) and _on_host(model)


def beam_decoder(model: Decoder[Any], inputs: int, width: int) -> Decoder[Any]:
    """What beam search is to read with, `width` beams for each input: the model, or on a CPU a faster way through."""
    if not isinstance(model, Transformer) or device_of(model).type != "cpu":
        return model
    rows = inputs * width
    if model.config.encoder is not None:
        whole = is_int8(model)  # in columns, these would first have to be made floats
        if rows <= (MAX_ROWS if whole else MAX_BEAMS) and _on_host(model):
            from headway.generate.accel.cpu.beam import CpuBeamDecoder

            return CpuBeamDecoder(model, width)
        if (rows > MAX_ROWS or not whole) and _in_columns(model):
            return ColumnBeamDecoder(model, width)
    return PackedHeadDecoder(model, rows) if rows > MAX_ROWS and packs(model) else model


def accelerates_beams(model: object) -> TypeGuard[Transformer]:
    """Whether a GPU has kernels for the beams of an encoder–decoder."""
    if not isinstance(model, Transformer) or model.config.encoder is None:
        return False
    on_gpu = next(model.parameters()).is_cuda and not torch.version.hip
    return on_gpu and can(model, CUDA_BEAMS, nn.Linear) and find_spec("triton") is not None


def _in_columns(model: Transformer) -> bool:
    plain = is_multi_head(model) and next(model.parameters()).dtype == torch.float32
    return plain and can(model, COLUMNS, nn.Linear, Int8Linear)


def _on_host(model: Transformer) -> bool:
    first = next(model.parameters())
    if first.device.type != "cpu" or first.dtype != torch.float32 or not can(model, CPU, nn.Linear, Int8Linear):
        return False
    return sum(t.numel() for t in model.state_dict().values()) >= MIN_WEIGHTS and _threads()


@cache
def _threads() -> bool:
    """Whether Numba is there, with threads that several callers may use at once."""
    if find_spec("numba") is None:
        return False
    for pool in ("tbbpool", "omppool"):
        try:
            __import__(f"numba.np.ufunc.{pool}")
        except ImportError:
            continue
        return True
    return False


def make_decoder(model: Model, keys: Sequence[Tensor], values: Sequence[Tensor]) -> FastDecoder:
    """A decoder with this cache, on the device where it is."""
    assert isinstance(model, Transformer)
    if keys[0].is_cuda:
        return CudaDecoder(model, keys, values)
    from headway.generate.accel.cpu.decoder import CpuDecoder

    return CpuDecoder(model, keys, values)


def compile_kernels(model: object, rows: int, say: Callable[[str], None]) -> None:
    """Have the kernels compiled that so many texts need on a CPU; said, where that takes a while: once on a machine."""
    if not accelerates(model, rows) or device_of(model).type != "cpu":
        return
    from headway.generate.accel.cpu.decoder import CpuDecoder, compiled

    if not compiled():
        say("compiling kernels for this CPU, once …")
    memory = model.start(batch=rows, capacity=4)
    decoder = CpuDecoder(model, memory.keys, memory.values)
    for texts in {1, rows}:
        decoder.step(range(texts))


_CACHED: WeakKeyDictionary[Model, FastDecoder] = WeakKeyDictionary()
"""The decoder that a model was last used with: making one takes as long as writing a sentence."""


def acquire(model: Model, rows: int, columns: int) -> FastDecoder:
    """A decoder for so many texts of up to `columns` tokens, nobody else's until it is given back."""
    assert isinstance(model, Transformer)
    kept = _CACHED.pop(model, None)
    if kept is not None and not kept.knows(model, rows):
        kept = None
    if kept is not None:
        kept.renew(model)
        if kept.suits(columns):
            return kept
    memory = model.start(batch=rows, capacity=(columns // 256 + 1) * 256)
    made = make_decoder(model, memory.keys, memory.values)
    if kept is not None and kept.columns < made.columns:
        made.learn(kept)
    return made


def forget(model: Model) -> None:
    """Nothing that was read with the model's weights is used again: for changes that nobody can see."""
    _CACHED.pop(model, None)


def release(decoder: FastDecoder) -> None:
    if (model := decoder.owner()) is not None:
        _CACHED[model] = decoder
