"""What the loop costs beside the arithmetic, and whether memory grows over many steps.

python benchmarks/loop.py [--depth 12] [--batch 32] [--length 1024] [--steps 60] [--long 10000]

"bare" is the compiled step alone on one batch: forward, backward, clipping, AdamW, no look at the loss, nothing read or
logged. "loop" is all that `headway train` does in a step, with its log; where the step is recorded, it can be faster.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from common import clean, emit, machine

from headway.config.recipe import DataConfig, ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.data.batching.token_store import TokenStore
from headway.data.tokenizers.train import train_tokenizer
from headway.model.attention import step_kernels
from headway.model.model import Transformer
from headway.tasks.lm.training import LanguageModelTraining
from headway.tasks.recipe import Recipe
from headway.train.distributed import World
from headway.train.log.events import Log
from headway.train.loop import Loop
from headway.train.optim.optimizer import make_optimizer

TOKENIZER = train_tokenizer("bytes", [])

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build(args: argparse.Namespace, steps: int, compiled: bool) -> Loop:
    torch.manual_seed(0)
    shape = ShapeConfig(depth=args.depth, width=args.width, heads=max(1, args.width // 64))
    model = Transformer(decoder_config(shape, args.vocab, args.length)).to(DEVICE).train()
    ids = np.random.default_rng(0).integers(0, args.vocab, 4_000_000).astype(np.uint16)
    store = TokenStore(ids, np.array([0, len(ids)]), len(ids), None)
    every = max(1, steps)
    config = TrainConfig(steps=steps, lr=1e-4, compile=compiled, eval_every=every, sample_every=every, save_every=every)
    task = LanguageModelTraining(
        Recipe(seed=1, data=DataConfig(length=args.length)), TOKENIZER, store, _short(store, args.length)
    )
    world = World(0, 1, DEVICE)
    return Loop(model, task, make_optimizer(model, config, args.width), config, task.plan(args.batch), world, 1)


def _short(store: TokenStore, length: int) -> TokenStore:
    return TokenStore(store.ids[: length + 1], np.array([0, length + 1]), length + 1, None)


def bare(loop: Loop, batch: list[torch.Tensor | None], steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        kernels = step_kernels() if DEVICE.type == "cuda" else nullcontext()
        with loop.compute.precision(), kernels:
            total = loop.compute.loss(loop.model, *batch)
        total.div(batch[0].numel()).backward()  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def resident() -> int:
    """Bytes this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def whole(loop: Loop, log: Log, watch: list[int]) -> float:
    """Seconds a step, the first tenth left out."""
    marks: list[float] = []

    def tell(kind: str, **facts: object) -> None:
        log.write(kind, **facts)
        if kind == "step":
            marks.append(time.perf_counter())
            if len(marks) % max(1, loop.config.steps // 10) == 0:  # type: ignore[operator]
                watch.append(resident())

    loop.run(tell, lambda: None, dict)
    first = max(10, len(marks) // 10)
    return (marks[-1] - marks[first]) / (len(marks) - 1 - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("depth", 12), ("width", 768), ("batch", 32), ("length", 1024), ("vocab", 50257)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--long", type=int, default=10_000)
    args = parser.parse_args()
    emit(**machine())
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder) / "log.jsonl")
        if args.steps:
            loop = build(args, args.steps, True)
            batch = list(loop.task.batch(np.arange(args.batch)).to(DEVICE))
            bare(loop, batch, 5)
            alone = min(bare(loop, batch, args.steps // 3) for _ in range(3))
            del loop
            clean()
            together = whole(build(args, args.steps, True), log, [])
            emit(bare_ms=alone * 1e3, loop_ms=together * 1e3, overhead=together / alone - 1)
            clean()
        if args.long:
            args.depth, args.width, args.batch, args.length, args.vocab = 2, 64, 8, 32, 256
            sizes: list[int] = []
            whole(build(args, args.long, False), log, sizes)
            emit(steps=args.long, resident_mb=[round(size / 1e6, 1) for size in sizes])
        log.close()


if __name__ == "__main__":
    main()
