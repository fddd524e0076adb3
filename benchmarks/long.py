"""Dense and sparse attention against length: time and memory, as a markdown table, JSON lines and a plot.

    python benchmarks/long.py --lengths 512,1024,2048,4096 --out long/
    python benchmarks/long.py --lengths 512,2048,8192,16384,32768,65536 --out long/ --compile

Two things are measured: attention forwards and backwards (8 heads, 64 wide, causal), and a whole training step of a
decoder of 6 layers, 512 wide (forward pass, loss, backward pass, AdamW). Each measurement is a process of its own, so
that its peak memory is its own; those of one length follow each other. Dense is torch's fused kernel without any mask.
On a GPU, numbers are in bfloat16, and memory is what torch allocated at most. On a CPU they are in float32, time is
that of the processor, which other programs change little, and memory is what the process had at most beyond what it had
before the first step.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import emit, machine
from torch import Tensor

from headway.config.model import LMHeadConfig, ModelConfig, PositionConfig, RopeConfig, SparseConfig, StackConfig
from headway.config.model import TokensConfig as Tokens
from headway.model.attention import AttentionBias, attend
from headway.model.masks import Layout, long_attention_bias
from headway.model.model import Transformer
from headway.report.charts import HEIGHT, WIDTH, Line, Series, path_of, scale_for

HEADS, WIDTH_OF_HEAD, LAYERS, VOCABULARY = 8, 64, 6, 1024
COLOURS = {"dense": "#c0392b", "sparse": "#2471a3", "window": "#229954"}
Row = dict[str, Any]


def stack_of(kind: str, layers: int, block: int, random: int) -> StackConfig:
    width = HEADS * WIDTH_OF_HEAD
    plain = StackConfig(
        d_model=width, n_layers=layers, n_heads=HEADS, d_ff=4 * width, causal=True, rope=RopeConfig(),
        sparse=SparseConfig(block=block, random=random, seed=0) if kind == "sparse" else None,
        window=3 * block if kind == "window" else None,
    )  # fmt: skip
    return plain


def attention(kind: str, length: int, device: torch.device, given: argparse.Namespace) -> Callable[[], Any]:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = (1, HEADS, length, WIDTH_OF_HEAD)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    layout, config = Layout.of(length, None, device), stack_of(kind, 1, given.block, given.random)

    def step() -> None:
        bias = AttentionBias(causal=True) if kind == "dense" else long_attention_bias(config, None, layout, 1, 0.0)
        out: Tensor = attend(q, k, v, bias)
        out.sum().backward()
        q.grad = k.grad = v.grad = None

    return step


def training(kind: str, length: int, device: torch.device, given: argparse.Namespace) -> Callable[[], Any]:
    front = Tokens(vocab=VOCABULARY, positions=PositionConfig(kind="none"))
    stack = stack_of(kind, LAYERS, given.block, given.random)
    model = Transformer(ModelConfig(decoder=stack, target=front, lm=LMHeadConfig())).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, VOCABULARY, (1, length + 1), device=device)

    def loss(ids: Tensor) -> Tensor:
        logits = model.lm.padded_logits(model(ids[:, :-1]).hidden)
        return torch.nn.functional.cross_entropy(logits[0].float(), ids[0, 1:])

    loss = torch.compile(loss) if given.compile else loss

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            total = loss(ids)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


WHAT = {"attention": attention, "step": training}


def measure(what: str, kind: str, length: int, given: argparse.Namespace) -> Row:
    """One measurement, in this process."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    row: Row = {"what": what, "kind": kind, "length": length}
    import_module("headway.kernels.sparse.choice")  # imports torch's compiler, which is no memory of a step
    try:
        step = WHAT[what](kind, length, device, given)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step()
        if device.type == "cuda":
            step()  # what compilers allocate does not count
            torch.cuda.reset_peak_memory_stats()
        times = []
        while len(times) < 3 or (sum(times) < 1 and len(times) < 20):
            start = _now()
            step()
            times.append(_now() - start)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        memory = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else most / 1024
        return row | {"ms": 1000 * statistics.median(times), "mib": memory}
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower():
            raise
        return row | {"ms": math.nan, "mib": math.nan}


def _now() -> float:
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measured(words: list[str], what: str, kind: str, length: int) -> Row:
    """One measurement, in a process of its own."""
    command = [sys.executable, __file__, *words, "--one", what, kind, str(length)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:  # killed for its memory
        return {"what": what, "kind": kind, "length": length, "ms": math.nan, "mib": math.nan}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def table(rows: list[Row], kinds: list[str]) -> str:
    """One line for each length: times and memory, and how many times as fast and as small as dense."""
    lines = []
    for what in dict.fromkeys(row["what"] for row in rows):
        lines += [f"| {what}, tokens | " + " | ".join(f"{kind} ms | {kind} MiB" for kind in kinds) + " |"]
        lines += ["|---:" * (1 + 2 * len(kinds)) + "|"]
        for length in sorted({row["length"] for row in rows}):
            cells = {row["kind"]: row for row in rows if (row["what"], row["length"]) == (what, length)}
            dense = cells.get("dense", {}).get("ms", math.nan)
            parts = []
            for kind in kinds:
                ms, mib = cells[kind]["ms"], cells[kind]["mib"]
                faster = "" if kind == "dense" or math.isnan(dense / ms) else f" ({dense / ms:.2f} ×)"
                parts += ["out of memory | –" if math.isnan(ms) else f"{ms:,.1f}{faster} | {mib:,.0f}"]
            lines.append(f"| {length:,} | " + " | ".join(parts) + " |")
        lines.append("")
    return "\n".join(lines)


def plot(rows: list[Row], kinds: list[str]) -> str:
    """An SVG with a panel of time and one of memory for each thing measured; both axes are logarithmic."""
    panels, tall = [], 3 * HEIGHT
    pairs = [(what, unit) for what in dict.fromkeys(row["what"] for row in rows) for unit in ("ms", "mib")]
    for number, (what, unit) in enumerate(pairs):
        lines = [_line(rows, what, kind, unit) for kind in kinds]
        across = [Line(name="", look="raw", x=line.x, y=line.x) for line in lines]
        x_scale, y_scale = scale_for(across, log=True), scale_for(lines, log=True)
        if x_scale is None or y_scale is None:
            continue
        down = number * (tall + 60) + 30
        panels.append(f'<text x="0" y="{down - 8}">{what}: {"milliseconds" if unit == "ms" else "MiB"}</text>')
        panels.append(f'<g transform="translate(0 {down}) scale(1 3)"><path d="M0 0V{HEIGHT}H{WIDTH}" stroke="#999"/>')
        for line, kind in zip(lines, kinds, strict=True):
            path = path_of(line.x, line.y, x_scale, y_scale)
            panels.append(f'<path d="{path}" stroke="{COLOURS[kind]}"><title>{kind}</title></path>')
        panels.append("</g>")
        for length, at in zip(lines[0].x, x_scale(lines[0].x), strict=True):
            panels.append(f'<text x="{at * WIDTH:.0f}" y="{down + tall + 14}">{length:.0f}</text>')
        for tick in y_scale.ticks():
            at = float(y_scale(np.array([tick]))[0])
            panels.append(f'<text x="4" y="{down + (1 - at) * tall:.0f}">{tick:g}</text>')
    names = "".join(f'<tspan fill="{COLOURS[kind]}">{kind} </tspan>' for kind in kinds)
    style = "path{fill:none;vector-effect:non-scaling-stroke;stroke-width:2}text{font:12px sans-serif}"
    size = f'width="{WIDTH}" height="{len(pairs) * (tall + 60) + 20}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style><text x="700" y="14">{names}</text>'
    return head + "".join(panels) + "</svg>"


def _line(rows: list[Row], what: str, kind: str, unit: str) -> Line:
    found = sorted((row["length"], row[unit]) for row in rows if (row["what"], row["kind"]) == (what, kind))
    x, y = (np.array(part, dtype=float) for part in zip(*found, strict=True))
    values: Series = y
    return Line(name=kind, look="raw", x=x, y=values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384,32768,65536")
    parser.add_argument("--kinds", default="dense,sparse,window")
    parser.add_argument("--what", default="attention,step")
    parser.add_argument("--block", type=int, default=64, help="model.sparse; the window is three blocks")
    parser.add_argument("--random", type=int, default=3, help="model.random_blocks")
    parser.add_argument("--compile", action="store_true", help="compile the loss, as training does on a GPU")
    parser.add_argument("--out", default="", help="a folder for long.jsonl, long.md and long.svg")
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "KIND", "LENGTH"), help="one measurement, in this process")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], given.one[1], int(given.one[2]), given)))
        return
    kinds, words = given.kinds.split(","), ["--block", str(given.block), "--random", str(given.random)]
    words += ["--compile"] if given.compile else []
    emit(**machine(), block=given.block, random=given.random, compiled=given.compile)
    rows = []
    for what in given.what.split(","):
        for length in map(int, given.lengths.split(",")):
            for kind in kinds:
                rows.append(measured(words, what, kind, length))
                emit(**rows[-1])
    print(table(rows, kinds))
    if given.out:
        folder = Path(given.out)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (folder / "long.md").write_text(table(rows, kinds), encoding="utf-8")
        (folder / "long.svg").write_text(plot(rows, kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
