"""Time and memory of a layer against the length of its input: O(L·d²), O(k·L·d²), O(L²·d), measured and fitted.

    python -m benchmarks.lengths [--width 128] [--lengths 64,128,256,512,1024,2048,4096] [--rounds 5] [--svg FILE]

Forward and backward of a recurrent layer, a convolution of three tokens, and causal self-attention with its four
matrices, all of one width, for one sequence; on the GPU if there is one. Each time is the least of several rounds, in
which the lengths take turns; on a CPU it is the time of the process, in which other work does not count. Memory is what
the backward pass keeps. The exponent p of L^p is that of the least squares line in log–log over all lengths, and over
the longest three: attention has a linear part (its matrices) and a quadratic one (its weights), so that its exponent
grows with the length. `plain` attention writes its weights into memory, `fused` does not.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import alternate, emit, machine
from headway.report.charts import Scale, path_of, tick_name

KERNEL, LONGEST = 3, 3
WIDE, HIGH, MARGIN = 640, 400, 60
COLOURS = ("#1c5cb8", "#b4480a", "#6a459c", "#23704a")


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.RNN(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.cells(x)[0]
        return y


class Convolution(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, KERNEL)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(F.pad(x.mT, (KERNEL - 1, 0))).mT
        return y


class Attention(nn.Module):
    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.fused, self.qkv, self.out = fused, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)  # one head
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
            y = ((q @ k.mT) / math.sqrt(x.shape[2])).masked_fill(later, -math.inf).softmax(-1) @ v
        found: Tensor = self.out(y[:, 0])
        return found


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "recurrent": Recurrent,
    "convolution": Convolution,
    "attention plain": lambda width: Attention(width, fused=False),
    "attention fused": lambda width: Attention(width, fused=True),
}


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """p of the least squares line log value = p · log length + c."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def saved_bytes(layer: nn.Module, x: Tensor) -> int:
    """Bytes of the tensors that the backward pass keeps, each memory once, without the layer's own weights."""
    own = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = layer(x)
    del y
    return sum(size for place, size in kept.items() if place not in own)


def svg(lengths: Sequence[int], times: dict[str, list[float]]) -> str:
    """Time against length on logarithmic axes, a line for each layer."""
    every = [value for each in times.values() for value in each]
    across, up = Scale(lengths[0], lengths[-1], True), Scale(min(every) / 1.2, max(every) * 1.2, True)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE + 2 * MARGIN} {HIGH + 2 * MARGIN}">']
    parts.append("<style>text { font: 13px sans-serif } path { fill: none; stroke-width: 2 }</style>")
    for length in lengths:
        at = MARGIN + WIDE * float(across(np.array(float(length))))
        parts.append(f'<text x="{at:.1f}" y="{HIGH + MARGIN + 20}" text-anchor="middle">{length}</text>')
    for tick in up.ticks():
        at = MARGIN + HIGH * (1 - float(up(np.array(tick))))
        parts.append(f'<text x="{MARGIN - 8}" y="{at + 4:.1f}" text-anchor="end">{tick_name(1000 * tick)} ms</text>')
        parts.append(f'<path d="M{MARGIN} {at:.1f}h{WIDE}" stroke="#ddd" style="stroke-width: 1"/>')
    for i, (name, values) in enumerate(times.items()):
        line = path_of(np.array(lengths, dtype=np.float64), np.array(values), across, up)
        scale = f"translate({MARGIN} {MARGIN}) scale({WIDE / 1000} {HIGH / 100})"
        stroke = f'stroke="{COLOURS[i]}" vector-effect="non-scaling-stroke"'
        parts.append(f'<path d="{line}" transform="{scale}" {stroke}/>')
        parts.append(f'<text x="{MARGIN + 12}" y="{MARGIN + 16 + 18 * i}" fill="{COLOURS[i]}">{name}</text>')
    parts.append(f'<text x="{MARGIN + WIDE / 2}" y="{HIGH + MARGIN + 44}" text-anchor="middle">tokens</text></svg>\n')
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--lengths", default="64,128,256,512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",")]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    emit(**machine(), width=args.width, rounds=args.rounds)
    times: dict[str, list[float]] = {}
    for name, make in LAYERS.items():
        layer = make(args.width).to(device)
        inputs = {str(n): torch.randn(1, n, args.width, device=device, requires_grad=True) for n in lengths}
        steps = {n: (lambda x=x: layer(x).sum().backward()) for n, x in inputs.items()}  # noqa: B023 — called here
        took = alternate(steps, args.rounds, clock=None if device.type == "cuda" else time.process_time)
        times[name] = [min(took[str(n)]) for n in lengths]
        memory = [saved_bytes(layer, inputs[str(n)]) for n in lengths]
        for n, seconds, size in zip(lengths, times[name], memory, strict=True):
            emit(layer=name, length=n, ms=1000 * seconds, mb=size / 1e6)
        fits = {"time": times[name], "memory": [float(size) for size in memory]}
        last = {f"{key}_longest": exponent(lengths[-LONGEST:], each[-LONGEST:]) for key, each in fits.items()}
        emit(layer=name, exponents={**{key: round(exponent(lengths, v), 2) for key, v in fits.items()},
                                    **{key: round(value, 2) for key, value in last.items()}})  # fmt: skip
    if args.svg:
        args.svg.write_text(svg(lengths, times), encoding="utf-8")


if __name__ == "__main__":
    main()
