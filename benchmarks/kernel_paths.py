"""Every accelerated path against the next simpler one, in one process: a path stays if it is 1.3 times as fast.

PYTHONPATH=$PWD python3 benchmarks/kernel_paths.py [--only decode,beam] [--rounds 5] [--threads 1] [--cpu-time]

On an NVIDIA GPU the Triton kernels and CUDA graphs are timed, elsewhere the Numba kernels; on both, searches over a
vocabulary in two passes. Weights are random. Every round runs both variants in turn; `times` is the median over rounds
of the ratio within a round. --cpu-time counts CPU seconds of the process, which other programs disturb little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from common import alternate, clean, emit, machine, ratio
from torch import Tensor

from headway.config.model import LayerConfig, RopeConfig
from headway.config.presets import gpt2, llama, transformer
from headway.generate import decode as decoding
from headway.generate.accel.cuda import topk
from headway.generate.accel.dispatch import accelerates, make_decoder
from headway.generate.beam import search
from headway.generate.beam.search import Beam, beam_search
from headway.generate.protocol import Source, prefill
from headway.generate.sampling import logits as filters
from headway.generate.sampling.sampler import Sampling
from headway.model.model import Model, Transformer
from headway.model.quantize import quantize_
from headway.tasks.losses import tokens as losses

Work = Callable[[], Any]
EARNS = 1.3


class Bench:
    def __init__(self, rounds: int, clock: Callable[[], float] | None) -> None:
        self.rounds, self.clock = rounds, clock

    def __call__(self, path: str, simpler: str, fast: Work, plain: Work, repeats: int = 1, **facts: Any) -> None:
        times = alternate({path: fast, simpler: plain}, self.rounds, warm=2, repeats=repeats, clock=self.clock)
        found = ratio(times, path, simpler)
        best = {"path_ms": 1e3 * min(times[path]), "simpler_ms": 1e3 * min(times[simpler])}
        emit(path=path, simpler=simpler, **facts, **best, times=found, earns=found >= EARNS)


@contextmanager
def replaced(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def without(module: ModuleType, name: str, value: Any, work: Work) -> Work:
    def run() -> Any:
        with replaced(module, name, value):
            return work()

    return run


def generated(model: Model, rows: int, tokens: int, length: int = 32) -> Work:
    prompts = torch.randint(0, 1000, (rows, length)).tolist()
    how = Sampling(temperature=0.0, stop=(), max_tokens=tokens)
    return lambda: [*decoding.decode(model, prompts, how)]


def slowly(work: Work) -> Work:
    """The same `decode` through `Model.step`."""
    return without(decoding, "accelerates", lambda model, rows: False, work)


def translated(model: Model, sentences: int, length: int) -> Work:
    device = next(model.parameters()).device
    ids = torch.randint(5, 30_000, (sentences, 25), device=device)
    beam = Beam(width=4, max_tokens=length, banned=((1,), (2,)))
    return lambda: beam_search(model, beam, source=Source(ids))


def marian(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Model:
    """transformer-base (Vaswani et al. 2017) with a vocabulary of 32,000."""
    config = transformer(dropout=0.0)
    config = replace(config, source=replace(config.source, vocab=32_000), target=replace(config.target, vocab=32_000))
    return Transformer(config).to(device, dtype).eval()


# --- CPU --------------------------------------------------------------------------------------------------------------


def decode_cpu(bench: Bench) -> None:
    for int8 in (False, True):
        model = Transformer(gpt2(12, 768, 12)).eval()
        model = quantize_(model) if int8 else model
        for rows in (1, 8):
            work = generated(model, rows, 16)
            bench("numba decoder", "Model.step", work, slowly(work), model="gpt2", int8=int8, rows=rows)
    local = LayerConfig(window=16, rope=RopeConfig())
    for name, fields in {
        "qwen3": {"qk_norm": "head"},
        "gemma2": {
            **{"norm_at": "sandwich", "norm_offset": 1.0, "softcap": 50.0},
            **{"rope": None, "pattern": (local, LayerConfig(rope=RopeConfig()))},
        },
    }.items():
        config = llama(12, 768, 12, 4, 2048)
        work = generated(Transformer(replace(config, decoder=replace(config.decoder, **fields))).eval(), 1, 16)
        bench("numba decoder", "Model.step", work, slowly(work), model=f"{name}-shaped", int8=False, rows=1)


def beam_cpu(bench: Bench) -> None:
    for int8 in (False, True):
        model = marian()
        model = quantize_(model) if int8 else model
        for sentences in (1, 2, 4, 8):
            work = translated(model, sentences, 16)
            plain = without(search, "beam_decoder", lambda model, inputs, width: model, work)
            bench("numba beams", "Model.step", work, plain, int8=int8, beams=4 * sentences)


def vocabulary_cpu(bench: Bench) -> None:
    for rows in (1, 16, 128):
        logits = torch.randn(rows, 32_000)
        bench("two-pass top", "topk", lambda x=logits: filters.top(x, 8), lambda x=logits: x.topk(8), 10, rows=rows)
    for rows in (1, 8):
        logits = (-2 * torch.arange(1, 50_258).log())[torch.rand(rows, 50_257).argsort(-1)]  # Zipf's law, squared
        fast, plain = lambda x=logits: filters.keep_top_p(x, 0.9), lambda x=logits: filters._keep_sorted(x, 0.9)
        bench("top_p of the likely", "top_p by sorting", fast, plain, 5, rows=rows)


# --- GPU --------------------------------------------------------------------------------------------------------------


def decode_cuda(bench: Bench) -> None:
    for name, config in (("gpt2", gpt2(12, 768, 12)), ("llama 1B", llama(16, 2048, 32, 8, 8192, 32_000, tied=True))):
        model = Transformer(config).to("cuda", torch.bfloat16).eval()
        assert accelerates(model, 1)
        for rows in (1, 64):
            work = generated(model, rows, 48)
            bench("cuda decoder", "Model.step", work, slowly(work), model=name, rows=rows)
            _steps(bench, model, name, rows)
        _prefills(bench, model, name)
        clean()


def _steps(bench: Bench, model: Model, name: str, rows: int) -> None:
    """One step as a graph and without; for one row, with products inside the kernels and by the library."""

    def decoder() -> Any:
        cache = model.start(batch=rows, capacity=256)
        made: Any = make_decoder(model, cache.keys, cache.values)
        made.end.fill_(100)
        return made

    captured, eager = decoder(), decoder()
    bench("CUDA graph", "no graph", captured.step, torch.no_grad()(eager._step), 20, model=name, rows=rows)
    if rows == 1:
        library = decoder()
        library._single_row = lambda x: library.head(library.through(x, library._attend))
        bench("vector kernels", "library products", captured.step, library.step, 50, model=name, rows=rows)


def _prefills(bench: Bench, model: Model, name: str) -> None:
    """Eight prompts of mixed length: without padding as a graph, and padded through the model."""
    prompts = [torch.randint(0, 1000, (n,)).tolist() for n in (20, 180, 64, 33, 250, 100, 75, 140)]
    cache = model.start(batch=len(prompts), capacity=512)
    decoder = make_decoder(model, cache.keys, cache.values)
    fast = lambda: decoder.prefill({row: (0, prompt) for row, prompt in enumerate(prompts)})  # noqa: E731
    plain = torch.no_grad()(lambda: prefill(model, prompts, None, 512))
    bench("unpadded prefill", "padded prefill", fast, plain, 5, model=name, prompts=len(prompts))


def beam_cuda(bench: Bench) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        model = marian(dtype, "cuda")
        for sentences in (1, 64, 256):
            work = translated(model, sentences, 24)
            plain = without(search, "accelerates_beams", lambda model: False, work)
            bench("cuda beams", "ordinary search", work, plain, beams=4 * sentences, dtype=str(dtype))
        clean()


def vocabulary_cuda(bench: Bench) -> None:
    for rows in (4, 256, 1024):
        logits, allowed = torch.randn(rows, 32_000, device="cuda"), torch.ones(32_000, dtype=torch.bool, device="cuda")

        def plain(x: Tensor = logits, allowed: Tensor = allowed) -> Any:
            return filters.top(x.float().log_softmax(-1).masked_fill_(~allowed, -torch.inf), 8)

        fast = lambda x=logits, a=allowed: topk.likeliest(x, 8, a)  # noqa: E731
        bench("top-k kernel", "log_softmax and two-pass top", fast, plain, 20, rows=rows)
        bench("two-pass top", "topk", lambda x=logits: filters.top(x, 8), lambda x=logits: x.topk(8), 20, rows=rows)


def loss_cuda(bench: Bench) -> None:
    model = Transformer(gpt2(1, 768, 12)).to("cuda", torch.bfloat16)
    hidden = torch.randn(8192, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(0, 50_257, (8192,), device="cuda")

    def step(loss: Callable[..., Any]) -> Work:
        def run() -> None:
            model.zero_grad()
            loss(model.lm, hidden, targets)[0].backward()

        return run

    fused = step(losses.token_loss)
    with replaced(losses, "_can_fuse", lambda x: False):
        compiled = torch.compile(losses.token_loss)
        compiled(model.lm, hidden, targets)[0].backward()  # compiled while the fused loss is off
    bench("fused loss", "plain loss", fused, without(losses, "_can_fuse", lambda x: False, fused), 5)
    bench("fused loss", "compiled loss", fused, step(compiled), 5)


CPU = {"decode": decode_cpu, "beam": beam_cpu, "vocabulary": vocabulary_cpu}
CUDA = {"decode": decode_cuda, "beam": beam_cuda, "vocabulary": vocabulary_cuda, "loss": loss_cuda}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="decode,beam,vocabulary,loss")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    emit(**machine())
    bench = Bench(args.rounds, time.process_time if args.cpu_time else None)
    for name, paths in (CUDA if torch.cuda.is_available() else CPU).items():
        if name in args.only.split(","):
            paths(bench)


if __name__ == "__main__":
    main()
