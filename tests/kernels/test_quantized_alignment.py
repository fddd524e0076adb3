"""Tensors that begin anywhere: no kernel may end the process, and what a vector kernel is given is aligned.

What may crash runs in a process of its own, so that a crash is a failure and not the end of the tests.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from headway.kernels.quantized import Int8Matrix, aligned, is_aligned
from headway.resources import VECTOR_BYTES

SEAT = """
import torch

def seated(tensor, offset):
    "The same numbers, beginning `offset` bytes after a multiple of 64."
    room = torch.zeros(tensor.nbytes + 128, dtype=torch.uint8)
    begin = -room.data_ptr() % 64 + offset
    found = room[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    found.copy_(tensor)
    assert found.data_ptr() % 64 == offset % 64
    return found
"""

MATRIX = (
    SEAT
    + """
from headway.kernels.quantized import Int8Matrix

for columns in (64, 40):
    for rows in (1, 4, 8, 40):
        x = torch.randn(rows, columns)
        right = Int8Matrix(torch.randn(70, columns))
        expected = right.product(x)
        for offset in range(64):
            print("weight", rows, columns, offset, flush=True)
            matrix = Int8Matrix(torch.zeros(70, columns))
            matrix.weight = seated(right.weight, offset)
            matrix.scale = seated(right.scale, offset // 2 * 2)
            given = seated(x.bfloat16(), offset // 2 * 2)
            for _ in range(2):
                assert torch.equal(matrix.product(given), expected)
"""
)

MODEL = (
    SEAT
    + """
from headway.generate.accel.cpu.decoder import CpuDecoder
from headway.model.model import Transformer
from headway.model.quantize import quantize_
from headway.config.presets import llama

def steps(model):
    cache = model.start(batch=5, capacity=8)
    decoder = CpuDecoder(model, cache.keys, cache.values)
    decoder.prefill({row: (0, [1, 2, 3 + row]) for row in range(5)})
    decoder.end.fill_(3)
    return decoder.step().clone()

torch.manual_seed(0)
for int8 in (False, True):
    model = Transformer(llama(1, 64, 2, 1, 96, 300)).eval().requires_grad_(False)
    if int8:
        quantize_(model)
    expected = steps(model)
    for offset in range(1, 64):
        print("model", int8, offset, flush=True)
        seats = {}
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is not None:
                        unit = tensor.element_size()
                        kept = seats.setdefault(id(tensor), seated(tensor, offset // unit * unit))
                        seats[id(kept)] = kept
                        table[name] = torch.nn.Parameter(kept, False) if table is module._parameters else kept
        assert torch.allclose(steps(model), expected, atol=1e-4), offset
"""
)


def survives(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, (done.returncode, last, done.stderr[-2000:])


def test_an_int8_matrix_anywhere_in_memory() -> None:
    survives(MATRIX)


def test_a_model_anywhere_in_memory() -> None:
    pytest.importorskip("numba")
    survives(MODEL)


@pytest.mark.parametrize("columns", [32, 40, 64])
@pytest.mark.parametrize("offset", range(1, VECTOR_BYTES))
def test_what_torchs_int8_product_is_given_is_aligned(
    columns: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On any CPU, also on one that would bear it."""
    given: list[Tensor] = []
    real = torch._weight_int8pack_mm

    def product(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        given.extend((x, weight, scale))
        assert all(is_aligned(t) and t.is_contiguous() for t in (x, weight, scale))
        return real(x, weight, scale)

    monkeypatch.setattr(torch, "_weight_int8pack_mm", product)
    matrix = Int8Matrix(torch.randn(8, columns))
    room = torch.empty(8 * columns + 2 * VECTOR_BYTES, dtype=torch.int8)
    begin = -room.data_ptr() % VECTOR_BYTES + offset
    matrix.weight = room[begin : begin + 8 * columns].view(8, columns).copy_(matrix.weight)
    matrix.scale = torch.cat([matrix.scale[:1], matrix.scale])[1:]
    x = torch.randn(5, columns + 2)[1:, 1:-1].bfloat16()
    expected = matrix.reference(x)
    torch.testing.assert_close(matrix.product(x), expected, rtol=2**-7, atol=1e-2)
    assert len(given) == 3
    kept = matrix.weight
    matrix.product(x)
    assert matrix.weight is kept  # copied once


def test_what_is_aligned_is_not_copied() -> None:
    whole = torch.zeros(4, 64)
    assert aligned(whole) is whole and is_aligned(whole)
    assert is_aligned(aligned(whole.flatten()[1:65]))
    turned = aligned(whole.T)
    assert turned.is_contiguous() and is_aligned(turned)
