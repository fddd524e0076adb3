"""Linear maps, with oneDNN's product on CPUs where it is faster than the one that torch takes.

torch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's CPUs only. On AMD's CPUs with AVX-512 oneDNN
is about twice as fast. The CPU and the shapes decide, never a measurement, so a resumed run multiplies as before.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LEAST = 1 << 20
"""Multiplications of a product from which oneDNN saves more than its call costs."""
CPUINFO = Path("/proc/cpuinfo")


class Linear(nn.Linear):
    """nn.Linear with the faster product."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (…, inputs) times weight (outputs, inputs), plus the bias."""
    if not _faster_by_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _product(x, weight, bias)
    found: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return found


def _faster_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if torch.compiler.is_compiling():  # compilers choose their own products
        return False
    plain = type(x) is Tensor and type(weight) in (Tensor, nn.Parameter)  # no subclass, such as a shard
    return (
        plain
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and (bias is None or bias.dtype == torch.float32)
        and x.numel() * len(weight) >= LEAST
        and onednn_is_faster()
        and not torch.is_autocast_enabled("cpu")
    )


@cache
def onednn_is_faster() -> bool:
    """Whether this CPU is one of AMD's with AVX-512, and torch has oneDNN."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    try:
        return "AuthenticAMD" in CPUINFO.read_text(errors="replace")
    except OSError:  # no Linux
        return False


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


class _Linear(torch.autograd.Function):
    """The same with gradients, which are products too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            _product(grad, weight.t()) if of_x else None,
            _product(rows.t(), x.flatten(0, -2).t()) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )
