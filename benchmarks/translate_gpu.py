"""transformer-base on a GPU, headway against transformers (Marian) with the same weights: a training step, translation.

python benchmarks/translate_gpu.py [--only step,beam] [--rounds 5] [--batches 64,256,1000]

step: 256 pairs of 64 tokens, label smoothing 0.1, clipping, fused AdamW, bfloat16, no dropout; masks are given, as they
are in training, with nothing masked. "compiled" is torch.compile of model and loss; "recorded", headway's default,
replays the compiled step as CUDA graphs. Rates count tokens of the targets.

beam: 1,000 sentences of 5 to 40 random ids, beam 4, bfloat16. Sentences are sorted by length and cut into batches; all
of a batch write as many tokens as its longest sentence has and 3 more, as neither side has a limit for each sentence,
and no token that ends a text may be written. Each side is measured with batches of several sizes, and its best counts:
large ones write somewhat more. In float32 it is also said how many of 64 sentences come out the same.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from common import alternate, clean, emit, machine, ratio
from marian import THEIRS, Rows, Write, marian, ours, same_model, theirs
from torch import Tensor

from headway.config.recipe import TrainConfig
from headway.model.model import Transformer
from headway.tasks.batch import Batch
from headway.tasks.seq2seq.training import pair_loss
from headway.train.compute import Compute
from headway.train.distributed import World
from headway.train.optim.optimizer import make_optimizer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMOOTHING, LR = 0.1, 1e-4
AGAINST = "transformers compiled"
Step = Callable[[], Any]


class Pairs(NamedTuple):
    """A batch as headway's task makes it."""

    source: Tensor
    attention_mask: Tensor
    inputs: Tensor
    targets: Tensor


def make_pairs(args: argparse.Namespace) -> Pairs:
    dice = torch.Generator().manual_seed(1)
    source, targets = torch.randint(10, args.vocab - 1, (2, args.pairs, args.length), generator=dice).to(DEVICE)
    start = torch.full_like(targets[:, :1], args.vocab - 1)
    inputs = torch.cat([start, targets[:, :-1]], 1)
    return Pairs(source, torch.ones_like(source, dtype=torch.bool), inputs, targets)


def our_step(model: Transformer, pairs: Pairs, compiled: bool) -> Step:
    """A step as headway's own trainer takes it, with its look at the loss."""
    config = TrainConfig(steps=1, lr=LR, compile=compiled)
    world = World(0, 1, DEVICE)
    optimizer = make_optimizer(model, config, model.config.output_stack.d_model)
    compute = Compute(model, pair_loss(SMOOTHING), optimizer, config, world)
    count = pairs.targets.numel()

    def step() -> None:
        compute.gradients([(Batch(tuple(pairs), count), 1)], count)
        compute.update()

    return step


def their_step(model: Any, pairs: Pairs, compiled: bool) -> Step:
    def loss() -> Tensor:
        scores = model(
            input_ids=pairs.source,
            attention_mask=pairs.attention_mask.long(),
            decoder_input_ids=pairs.inputs,
            use_cache=False,
        ).logits
        return F.cross_entropy(scores.float().flatten(0, 1), pairs.targets.flatten(), label_smoothing=SMOOTHING)

    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    call = torch.compile(loss) if compiled else loss

    def step() -> None:
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=DEVICE.type == "cuda"):
            value = call()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def build(variant: str, pairs: Pairs, args: argparse.Namespace) -> tuple[Step, int]:
    """A step of one variant, and the number of weights."""
    side, _, mode = variant.partition(" ")
    model: Any = marian(args.vocab, args.layers, dropout=0.0)
    if side == "headway":
        with tempfile.TemporaryDirectory() as folder:
            model = same_model(model, Path(folder))
    model = model.to(DEVICE).train()
    make = our_step if side == "headway" else their_step
    return make(model, pairs, mode != "eager"), sum(p.numel() for p in model.parameters())


def peak(step: Step, weights: int) -> float | None:
    """GiB of a step: what it takes, and weights, gradients and moments."""
    if DEVICE.type != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before + 16 * weights) / 2**30


def training(args: argparse.Namespace) -> None:
    pairs, steps, peaks = make_pairs(args), {}, {}
    for variant in args.variants.split(","):
        step, weights = build(variant, pairs, args)
        for _ in range(3):  # the fourth step may be recorded: its memory is seen as a whole
            step()
        peaks[variant], steps[variant] = peak(step, weights), step
    times = alternate(steps, args.rounds, warm=2, repeats=args.repeats)
    for variant, seconds in times.items():
        emit(
            name=f"training step, {args.pairs} pairs of {args.length} tokens",
            variant=variant,
            tokens_s=pairs.targets.numel() / statistics.median(seconds),
            step_ms=1000 * statistics.median(seconds),
            peak_gib=peaks[variant],
            ratio=ratio(times, variant, AGAINST) if AGAINST in times else None,
        )


def sentences(count: int, vocab: int) -> Rows:
    dice = random.Random(0)
    return [[dice.randrange(10, vocab - 1) for _ in range(dice.randint(5, 40))] for _ in range(count)]


def together(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, int, Tensor]:
    """Sentences as one batch: ids, the tokens that are to be written, and which of the ids are real."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows], device=DEVICE)
    return ids, longest + 3, ids != pad


def writer(write: Callable[..., Write], model: Any, rows: Rows, size: int, args: argparse.Namespace) -> Write:
    """All sentences, so many at a time, those of like length together; in the order of their lengths."""
    ordered = sorted(rows, key=len, reverse=True)
    calls = []
    for at in range(0, len(ordered), size):
        ids, length, attention_mask = together(ordered[at : at + size], args.vocab - 1)
        calls.append(write(model, ids, length, args.beam, attention_mask))
    return lambda: [row for call in calls for row in call()]


def translation(args: argparse.Namespace) -> None:
    oracle = marian(args.vocab, args.layers)
    with tempfile.TemporaryDirectory() as folder:
        model = same_model(oracle, Path(folder))
    models = {"transformers": (theirs, oracle.to(DEVICE)), "headway": (ours, model.to(DEVICE))}
    rows = sentences(args.sentences, args.vocab)
    agreement(models, rows[:64], args)
    half = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    for _, each in models.values():
        each.to(half)
    best: dict[str, tuple[float, int]] = {}
    for size in (int(n) for n in args.batches.split(",")):
        calls = {name: writer(write, each, rows, size, args) for name, (write, each) in models.items()}
        written = sum(map(len, calls["headway"]()))
        times = alternate(calls, args.rounds, warm=1)
        for name, seconds in times.items():
            median = statistics.median(seconds)
            best[name] = min(best.get(name, (median, size)), (median, size))
            emit(
                name=f"translation, {len(rows)} sentences, beam {args.beam}",
                variant=name,
                batch=size,
                seconds=median,
                tokens_s=written / median,
                ratio=ratio(times, name, "transformers"),
            )
    emit(
        name=f"translation, {len(rows)} sentences, beam {args.beam}, best batches",
        **{f"{name} s, batch {size}": seconds for name, (seconds, size) in best.items()},
        ratio=best["transformers"][0] / best["headway"][0],
    )


def agreement(models: dict[str, tuple[Callable[..., Write], Any]], rows: Rows, args: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("highest")
    found = [writer(write, each, rows, len(rows), args)() for write, each in models.values()]
    torch.set_float32_matmul_precision("high")
    emit(
        name="same translations in float32", sentences=len(rows), same=sum(a == b for a, b in zip(*found, strict=True))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="step,beam")
    parser.add_argument("--batches", default="64,256,1000", help="sentences translated at a time")
    parser.add_argument("--variants", default=f"transformers eager,{AGAINST},headway eager,headway recorded")
    for name, value in (
        ("rounds", 5),
        ("repeats", 10),
        ("pairs", 256),
        ("length", 64),
        ("sentences", 1000),
        ("beam", 4),
        ("vocab", 32000),
        ("layers", 6),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    THEIRS.utils.logging.set_verbosity_error()
    THEIRS.utils.logging.disable_progress_bar()
    emit(**machine(), transformers=THEIRS.__version__)
    for name, measure in (("step", training), ("beam", translation)):
        if name in args.only.split(","):
            measure(args)
            clean()


if __name__ == "__main__":
    main()
