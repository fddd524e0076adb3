"""An int8 model on a CPU: how long a step of so many texts takes, by the kernels and by the model; what they differ by.

python benchmarks/int8_rows.py [--rounds 6] [--threads 2]

GPT-2 124M with random weights. Times are CPU seconds of the process, so what else the machine does counts little.
Differences are relative (norm of the difference to norm) over the logits of 40 tokens of 8 texts, for a smaller model;
`equal_bits` compares a text alone with the same among 8.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from common import emit, machine
from torch import Tensor

from headway.config.presets import gpt2
from headway.generate.accel.cpu.decoder import CpuDecoder
from headway.model.model import Transformer
from headway.model.quantize import quantize_


def least(rounds: int, work: Callable[[], Any]) -> float:
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return 1e3 * min(found)


def decoder_of(model: Transformer, rows: int) -> CpuDecoder:
    cache = model.start(batch=rows, capacity=64)
    return CpuDecoder(model, cache.keys, cache.values)


def by_kernels(model: Transformer, ids: Tensor) -> Tensor:
    decoder, found = decoder_of(model, len(ids)), []
    for column in ids.T:
        decoder.ids.copy_(column)
        found.append(decoder.step().clone())
    return torch.stack(found, 1)


def by_steps(model: Transformer, ids: Tensor) -> Tensor:
    cache = model.start(batch=len(ids), capacity=64)
    return torch.stack([model.step(cache, column[:, None]) for column in ids.T], 1)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    emit(**machine())
    plain = Transformer(gpt2(6, 384, 6, 5000, 256)).eval()
    model, ids = quantize_(copy.deepcopy(plain)), torch.randint(0, 5000, (8, 40))
    kernels, steps = by_kernels(model, ids), by_steps(model, ids)
    whole, exact = (m.lm(m(ids).hidden) for m in (model, plain))
    for name, one, other in (
        ("kernels to steps", kernels, steps), ("steps to one pass", steps, whole), ("int8 to float32", whole, exact),
    ):  # fmt: skip
        emit(difference=name, relative=float((one - other).norm() / other.norm()))
    emit(kernels_equal_bits=torch.equal(by_kernels(model, ids[:1]), kernels[:1]))
    emit(steps_equal_bits=torch.equal(by_steps(model, ids[:1]), steps[:1]))
    large = quantize_(Transformer(gpt2(12, 768, 12, 50257, 1024)).eval())
    for rows in (1, 4, 16, 32, 64, 128):
        decoder, cache = decoder_of(large, rows), large.start(batch=rows, capacity=64)
        next_ids = torch.ones(rows, 1, dtype=torch.long)
        ours = least(args.rounds, decoder.step)
        theirs = least(args.rounds, lambda c=cache, i=next_ids: large.step(c, i))
        emit(rows=rows, kernels_ms=ours, steps_ms=theirs, times=theirs / ours)


if __name__ == "__main__":
    main()
