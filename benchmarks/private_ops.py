"""torch's private operations against the next simpler public way, on a CPU; each must be worth its risk.

python benchmarks/private_ops.py [--rounds 15] [--threads 2]

_weight_int8pack_mm against a float32 matrix made for the occasion (GPT-2's matrices, and its output matrix);
_linear_pointwise (oneDNN) against torch's own product, forward and backward, on the CPUs that headway uses it for;
_foreach_lerp_ against a loop (the weights of a small model, for a running mean). Every round runs both ways in turn;
`times` is the median over rounds of the ratio within a round: how many times as fast the private operation is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import alternate, emit, machine, ratio

from headway.kernels.linear import linear, onednn_is_faster
from headway.kernels.quantized import Int8Matrix

ROWS = (1, 4, 16, 32, 64, 512)
TOKENS = (16, 128, 1024)
SHAPES = {"qkv": (2304, 768), "ffn.down": (768, 3072), "output": (50304, 768)}


def measure(rounds: int, private: Callable[[], Any], public: Callable[[], Any], **facts: Any) -> None:
    times = alternate({"private": private, "public": public}, rounds)
    best = {f"{name}_ms": 1e3 * min(found) for name, found in times.items()}
    emit(**facts, **best, times=ratio(times, "private", "public"))


@torch.inference_mode(False)
@torch.enable_grad()
def gradients(make: Callable[..., torch.Tensor], x: torch.Tensor, weight: torch.Tensor) -> None:
    """The product and the gradients of both sides."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = make(x, weight)
    y.backward(y.detach())


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    emit(**machine())
    for name, shape in SHAPES.items():
        matrix = Int8Matrix(torch.randn(shape))
        for rows in ROWS if name != "output" else ROWS[:4]:
            x = torch.randn(rows, shape[1])
            facts = {"op": "_weight_int8pack_mm", "matrix": name, "rows": rows}
            measure(args.rounds, lambda m=matrix, x=x: m.product(x), lambda m=matrix, x=x: m.reference(x), **facts)
    if onednn_is_faster():
        for width in (384, 768):
            x, weight = torch.randn(TOKENS[-1], width), torch.randn(4 * width, width)
            for rows in TOKENS:
                facts = {"op": "_linear_pointwise", "matrix": f"{4 * width} × {width}", "rows": rows}
                few, both = x[:rows], (lambda f, w=weight, x=x[:rows]: gradients(f, x, w))
                measure(
                    args.rounds, lambda x=few, w=weight: linear(x, w), lambda x=few, w=weight: F.linear(x, w), **facts
                )
                measure(args.rounds, lambda f=both: f(linear), lambda f=both: f(F.linear), **facts, backward=True)
    means, weights = ([torch.randn(256, 256) for _ in range(100)] for _ in range(2))

    def loop() -> None:
        for mean, now in zip(means, weights, strict=True):
            mean.lerp_(now, 0.01)

    measure(args.rounds, lambda: torch._foreach_lerp_(means, weights, 0.01), loop, op="_foreach_lerp_")


if __name__ == "__main__":
    main()
