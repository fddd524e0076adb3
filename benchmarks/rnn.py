"""Training step of an LSTM language model, headway beside plain torch of the same shape, in turn in one process.

python benchmarks/rnn.py [--vocab 10000] [--width 650] [--depth 2] [--batch 20] [--length 35] [--rounds 7] [--repeats 5]
python benchmarks/rnn.py --vocab 1000 --width 128          (a shape for a CPU)
python benchmarks/rnn.py --dtype bfloat16                  (both sides under autocast)

The plain side is nn.Embedding, nn.LSTM (cuDNN on a GPU), nn.Linear, cross entropy, clipping and fused AdamW; its state
is carried and detached. headway's steps are those of its trainer (headway/train/compute.py), with its look at the loss:
"rows" starts each row from zeros, "carry" goes on from the state of the step before, "regularised" drops weights and
words with locked masks, which the plain side does not do. Ratios are to the plain side; above 1 headway is faster. On a
CPU the clock is that of the process, so that other processes do not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from common import alternate, emit, machine, ratio
from torch import Tensor, nn

from headway.baselines.build import make_model
from headway.config.recipe import ShapeConfig, TrainConfig
from headway.config.shape import decoder_config
from headway.tasks.batch import Batch
from headway.tasks.lm.training import LanguageModelTraining
from headway.train.compute import Compute
from headway.train.distributed import World
from headway.train.optim.optimizer import make_optimizer

REGULARISED: dict[str, Any] = {
    **{"locked_dropout": True, "dropout": 0.4, "layer_dropout": 0.25, "word_dropout": 0.1, "weight_dropout": 0.5},
    **{"ar": 2.0, "tar": 1.0},
}


class Plain(nn.Module):
    """The language model as one writes it by hand, with the output matrix tied to the word vectors."""

    def __init__(self, vocab: int, width: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, depth, batch_first=True)
        self.output = nn.Linear(width, vocab)
        self.output.weight = self.words.weight

    def forward(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.lstm(self.words(ids), state)
        return self.output(y), state


def autocast(args: argparse.Namespace, device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16) if args.dtype == "bfloat16" else nullcontext()


def plain_step(args: argparse.Namespace, ids: Tensor, following: Tensor) -> Callable[[], Any]:
    model = Plain(args.vocab, args.width, args.depth).to(ids.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    state: Any = None

    def step() -> float:
        nonlocal state
        with autocast(args, ids.device):
            logits, after = model(ids, state)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), following.flatten())
        state = tuple(part.detach() for part in after)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def our_step(args: argparse.Namespace, ids: Tensor, following: Tensor, carry: bool, **shape: Any) -> Callable[[], Any]:
    settings = ShapeConfig(kind="lstm", depth=args.depth, width=args.width, **shape)
    model = make_model(decoder_config(settings, args.vocab, args.length)).to(ids.device).train()
    config = TrainConfig(steps=1, lr=1e-3, dtype=args.dtype, compile=False, cuda_graphs=False)
    state = model.first_carry(args.batch) if carry else ()
    world = World(0, 1, ids.device)
    optimizer = make_optimizer(model, config, args.width)
    compute = Compute(model, LanguageModelTraining.loss, optimizer, config, world, carry=state)
    parts = [(Batch((ids, following, None), ids.numel()), 1)]

    def step() -> None:
        compute.gradients(parts, ids.numel())
        compute.update()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = {"vocab": 10_000, "width": 650, "depth": 2, "batch": 20, "length": 35, "rounds": 7, "repeats": 5}
    for name, value in shape.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ids = torch.randint(args.vocab, (args.batch, args.length), device=device)
    following = ids.roll(-1, 1).contiguous()
    variants = {
        "plain": plain_step(args, ids, following),
        "headway rows": our_step(args, ids, following, carry=False),
        "headway carry": our_step(args, ids, following, carry=True),
        "headway regularised": our_step(args, ids, following, carry=True, **REGULARISED),
    }
    emit(**machine(), dtype=args.dtype, **{name: getattr(args, name) for name in shape})
    clock = None if device.type == "cuda" else time.process_time
    times = alternate(variants, args.rounds, warm=3, repeats=args.repeats, clock=clock)
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        emit(variant=name, ms=1e3 * middle, tokens_s=ids.numel() / middle, ratio=ratio(times, name, "plain"))


if __name__ == "__main__":
    main()
